"""A published encoder loads in about the memory of its fp32 weights: a file is mapped, never copied as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LOAD = """
import sys
from pathlib import Path
from deepsiam.trainer.interop.folder import Folder

def peak(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

tiny, folder = map(Path, sys.argv[1:])
Folder(tiny).trunk()  # what is imported on the way is not counted
before = peak("VmRSS")
trunk = Folder(folder).trunk()
print((peak("VmHWM") - before) / sum(4 * parameter.numel() for parameter in trunk.parameters()))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not tell a process's peak memory")
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1.3), (torch.bfloat16, 1.8)])
def test_the_peak_is_little_more_than_the_weights(dtype: torch.dtype, most: float, tmp_path: Path) -> None:
    """In shards and with a tied head; of half-precision weights, the mapped file counts too."""
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "pad_token_id": 0, "tie_word_embeddings": True}
    folders = {1: tmp_path / "tiny", 8: tmp_path / "larger"}
    for layers, folder in folders.items():
        sizes = {"vocab_size": 500 * layers, "num_hidden_layers": layers, "hidden_size": 512, "intermediate_size": 1536}
        config = LlamaConfig(**sizes, **heads)
        LlamaForCausalLM(config).to(dtype).save_pretrained(folder, max_shard_size="20MB")
    assert len(list(folders[8].glob("*.safetensors"))) > 2
    arguments = [sys.executable, "-c", LOAD, *map(str, folders.values())]
    loaded = subprocess.run(arguments, capture_output=True, text=True, check=True)
    print(loaded.stdout)
    assert 0.5 < float(loaded.stdout.splitlines()[-1]) < most
