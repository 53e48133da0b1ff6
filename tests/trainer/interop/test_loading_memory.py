"""A published encoder loads in about the memory of its fp32 weights: a file is mapped, never copied as a whole."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from deepsiam.trainer.interop.folder import Folder
from tests import warm

STATUS = Path("/proc/self/status")


@pytest.mark.skipif(not STATUS.exists(), reason="the kernel does not tell a process's peak memory")
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
    process = warm.fork(_measure, *folders.values(), tmp_path / "measured")
    process.join()
    copied, peak = map(float, (tmp_path / "measured").read_text().split())
    assert copied < 0.1
    assert 0.5 < peak < most


def _measure(tiny: Path, folder: Path, out: Path) -> None:
    """Write the memory that reading the files takes but for mapped pages, and the peak, as shares of the weights."""
    Folder(tiny).trunk()  # what is imported on the way is not counted
    opened, resident, anonymous = Folder(folder), _memory("VmRSS"), _memory("RssAnon")
    assert opened.weights
    copied = _memory("RssAnon") - anonymous
    size = sum(4 * parameter.numel() for parameter in opened.trunk().parameters())
    out.write_text(f"{copied / size} {(_memory('VmHWM') - resident) / size}")


def _memory(key: str) -> int:
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(key)) * 1024
