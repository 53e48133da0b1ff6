"""A published encoder loads in about the memory of its fp32 weights: a file is mapped, never copied as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LOAD = """
import os
import sys
from pathlib import Path
from deepsiam.trainer.interop.folder import Folder

def peak(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

tiny, *folders = map(Path, sys.argv[1:])
Folder(tiny).trunk()  # what is imported on the way is not counted
for folder in folders:
    if os.fork():
        os.wait()
        continue
    before = peak("VmRSS")
    trunk = Folder(folder).trunk()
    print((peak("VmHWM") - before) / sum(4 * parameter.numel() for parameter in trunk.parameters()), flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not tell a process's peak memory")
def test_the_peak_is_little_more_than_the_weights(tmp_path: Path) -> None:
    """In shards and with a tied head; of half-precision weights, the mapped file counts too."""
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "pad_token_id": 0, "tie_word_embeddings": True}
    folders = {tmp_path / "tiny": (1, torch.float32)}
    folders |= {tmp_path / str(dtype): (8, dtype) for dtype in (torch.float32, torch.bfloat16)}
    for folder, (layers, dtype) in folders.items():
        sizes = {"vocab_size": 500 * layers, "num_hidden_layers": layers, "hidden_size": 512, "intermediate_size": 1536}
        config = LlamaConfig(**sizes, **heads)
        LlamaForCausalLM(config).to(dtype).save_pretrained(folder, max_shard_size="20MB")
        assert layers == 1 or len(list(folder.glob("*.safetensors"))) > 2
    loaded = subprocess.run([sys.executable, "-c", LOAD, *folders], capture_output=True, text=True, check=True)
    full, half = map(float, loaded.stdout.splitlines())
    assert 0.5 < full < 1.3
    assert 0.5 < half < 1.8
