"""A published encoder loads in about the memory of its fp32 weights: a file is mapped, never copied as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

LOAD = """
import gc, sys
from pathlib import Path
from trainer.training.published.hugging_face import load_hugging_face

def peak(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

before = peak("VmRSS")
trunk = load_hugging_face(Path(sys.argv[1]))
print((peak("VmHWM") - before) / sum(4 * parameter.numel() for parameter in trunk.parameters()))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel does not tell a process's peak memory")
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1.3), (torch.bfloat16, 1.8)])
def test_the_peak_is_little_more_than_the_weights(dtype: torch.dtype, most: float, tmp_path: Path) -> None:
    """In shards and with a tied head; of half-precision weights, the mapped file counts too."""
    shape = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = LlamaConfig(vocab_size=4000, num_hidden_layers=8, pad_token_id=0, tie_word_embeddings=True, **shape)
    LlamaForCausalLM(config).to(dtype).save_pretrained(tmp_path, max_shard_size="20MB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, check=True)
    assert 0.5 < float(loaded.stdout.splitlines()[-1]) < most
