"""What a device can hold and compute: micro-batches beyond its memory are refused; peaks of GPUs."""

from pathlib import Path
from typing import Any

import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.training.engine.hardware import GPUS, NAMES, peak_of
from deepsiam.trainer.training.engine.memory import bytes_per_token, check_memory
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build

BERT_BASE = {"model_type": "bert", "vocab_size": 32768 + 4, "max_position_embeddings": 569}


def recipe(micro: int = 1, checkpointing: bool = False, **method: Any) -> PretrainRecipe:
    values = {
        "activation_checkpointing": checkpointing,
        "run": "r",
        "steps": 1,
        "data": {"shards": "s"},
        "batch": {"size": micro, "micro": micro},
    }
    return build(PretrainRecipe, {**values, "trunk": {}, "optimizer": {"lr": 1e-3}, "method": method}, "a recipe")


def test_a_sample_beyond_memory_is_refused_by_the_names_of_its_sizes() -> None:
    available = 24_000_000_000
    with torch.device("meta"):
        trunk = build_trunk(BERT_BASE)
    usual = recipe(name="cross_thought")
    model = build_model(usual.method, trunk)
    check_memory(usual, model, available)  # 500 x 64 at BERT-base: 12 GB
    large = recipe(name="cross_thought", sequences=5000)
    sizes = "batch.micro=1, method.sequences=5000, method.sequence_tokens=64"
    problem = "a micro-batch of 345,000 tokens keeps at least 57 GB .* has 24 GB"
    with pytest.raises(InputError, match=f"^{sizes}: {problem}: .*, or set activation_checkpointing=true$"):
        check_memory(large, model, available)
    check_memory(recipe(checkpointing=True, name="cross_thought", sequences=5000), model, available)
    with pytest.raises(InputError, match="lower one of them$"):
        check_memory(recipe(micro=10, checkpointing=True, name="cross_thought", sequences=5000), model, available)


def test_the_bound_is_less_than_what_autograd_keeps(shards: Path) -> None:
    """docs/pretraining/cross_thought.md counts 12.0 GB, 1.0 GB with checkpointing: the bound refuses neither."""
    with torch.device("meta"):
        model = build_model(recipe(name="cross_thought").method, build_trunk(BERT_BASE))
    tokens = 500 * 69
    assert 0.4 * 12.0e9 < tokens * bytes_per_token(recipe(name="cross_thought"), model) < 12.0e9
    checkpointed = recipe(checkpointing=True, name="cross_thought")
    assert 0.4 * 1.0e9 < tokens * bytes_per_token(checkpointed, model) < 1.0e9


def test_frozen_layers_keep_nothing() -> None:
    with torch.device("meta"):
        model = build_model(recipe(name="mlm").method, build_trunk(BERT_BASE))
    whole, top = recipe(name="mlm"), recipe(name="mlm")
    top = top.model_copy(update={"optimizer": top.optimizer.model_copy(update={"train": 3})})
    assert bytes_per_token(top, model) * 4 == bytes_per_token(whole, model)


@pytest.mark.parametrize("name", [*PRETRAINING])
def test_every_method_states_how_large_an_example_is(name: str) -> None:
    method = recipe(micro=2, name=name).method
    assert method.example_tokens >= method.positions >= 8


@pytest.mark.parametrize(
    ("name", "trunk"),
    [
        ("ict", {"model_type": "albert", "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2}),
        ("ict", {"model_type": "electra", "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2}),
        ("clm", {"model_type": "gpt2", "n_embd": 32, "n_head": 2}),
        ("clm", {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}),
    ],
)
def test_the_bound_needs_no_more_of_a_trunk_than_its_sizes(name: str, trunk: dict[str, Any]) -> None:
    """A narrow embedding, and keys that only BERT's configuration has, do not matter."""
    sizes = {"vocab_size": 60, "pad_token_id": 0, "num_hidden_layers": 2, "max_position_embeddings": 512}
    small = recipe(micro=2, name=name)
    model = build_model(small.method, build_trunk({**sizes, **trunk}))
    check_memory(small, model, 10**9)
    inner = {"albert": 16384, "electra": 1024, "gpt2": 0, "llama": 48}[trunk["model_type"]]
    assert bytes_per_token(small, model) == 2 * 2 * (5 * 32 + inner)


TERA = 1e12


@pytest.mark.parametrize(
    ("name", "dense", "with_sparsity"),  # TFLOP/s of bf16, or fp16 where there is no bf16
    [
        ("NVIDIA B300 SXM6 AC", 2250, 4500),
        ("NVIDIA B200", 2250, 4500),
        ("NVIDIA GH200 480GB", 989, 1979),
        ("NVIDIA H200", 989, 1979),
        ("NVIDIA H200 NVL", 835, 1671),
        ("NVIDIA H100 80GB HBM3", 989, 1979),
        ("NVIDIA H100 NVL", 835, 1671),
        ("NVIDIA H100 PCIe", 756, 1513),
        ("NVIDIA A100-SXM4-80GB", 312, 624),
        ("A100-SXM4-40GB", 312, 624),
        ("NVIDIA A100 80GB PCIe", 312, 624),
        ("NVIDIA A100-PCIE-40GB", 312, 624),
        ("NVIDIA L40S", 362, 733),
        ("NVIDIA L40", 181, 362),
        ("NVIDIA L4", 121, 242),
        ("NVIDIA A10", 125, 250),
        ("NVIDIA A10G", 70, 140),
        ("NVIDIA GeForce RTX 4090", 165, 330),
        ("Tesla V100-SXM2-32GB", 125, None),
        ("Tesla V100-PCIE-16GB", 112, None),
        ("Tesla T4", 65, None),
        ("AMD Instinct MI300X", 1307, 2615),
        ("AMD Instinct MI250X / MI250", 191.5, None),  # one of its two dies
    ],
)
def test_peaks_are_dense_ones(name: str, dense: float, with_sparsity: float | None) -> None:
    assert peak_of(name) == dense * TERA
    assert with_sparsity is None or 1.9 < with_sparsity / dense < 2.1


@pytest.mark.parametrize(
    "name",
    ["NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA T400", "Quadro T1000", "NVIDIA A100X", ""],
)
def test_a_device_with_a_similar_name_is_not_taken_for_another(name: str) -> None:
    assert peak_of(name) is None


def test_every_gpu_has_a_driver_s_name_and_plausible_sizes() -> None:
    assert set(NAMES.values()) == set(GPUS)
    for gpu in GPUS.values():
        assert 50 * TERA < gpu.peak < 3000 * TERA
        assert 16e9 <= gpu.memory <= 288e9
        assert gpu.within < gpu.memory_bandwidth
        assert 100 < gpu.peak / gpu.memory_bandwidth < 450  # operations for each byte
