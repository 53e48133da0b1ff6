"""What a device can hold and compute: micro-batches beyond its memory are refused; peaks of GPUs."""

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
from tests.toy import SEED_RECIPE

BERT_BASE = {"model_type": "bert", "vocab_size": 32768 + 4, "max_position_embeddings": 569}


def recipe(micro: int = 1, checkpointing: bool = False, **method: Any) -> PretrainRecipe:
    changes = {"trunk": {}, "batch": {"size": micro, "micro": micro}, "activation_checkpointing": checkpointing}
    return build(PretrainRecipe, {**SEED_RECIPE, **changes, "method": method}, "a recipe")


@pytest.fixture(scope="module")
def model() -> Any:
    """Cross-Thought at BERT-base, without memory."""
    with torch.device("meta"):
        return build_model(recipe(name="cross_thought").method, build_trunk(BERT_BASE))


def test_a_sample_beyond_memory_is_refused_by_the_names_of_its_sizes(model: Any) -> None:
    available = 24_000_000_000
    check_memory(recipe(name="cross_thought"), model, available)  # 500 x 64 at BERT-base: 12 GB
    large = recipe(name="cross_thought", sequences=5000)
    sizes = "batch.micro=1, method.sequences=5000, method.sequence_tokens=64"
    problem = "a micro-batch of 345,000 tokens keeps at least 57 GB .* has 24 GB"
    with pytest.raises(InputError, match=f"^{sizes}: {problem}: .*, or set activation_checkpointing=true$"):
        check_memory(large, model, available)
    check_memory(recipe(checkpointing=True, name="cross_thought", sequences=5000), model, available)
    with pytest.raises(InputError, match="lower one of them$"):
        check_memory(recipe(micro=10, checkpointing=True, name="cross_thought", sequences=5000), model, available)


def test_the_bound_is_less_than_what_autograd_keeps(model: Any) -> None:
    """docs/pretraining/cross_thought.md counts 12.0 GB, 1.0 GB with checkpointing: the bound refuses neither."""
    tokens = 500 * 69
    assert 0.4 * 12.0e9 < tokens * bytes_per_token(recipe(name="cross_thought"), model) < 12.0e9
    checkpointed = recipe(checkpointing=True, name="cross_thought")
    assert 0.4 * 1.0e9 < tokens * bytes_per_token(checkpointed, model) < 1.0e9


def test_frozen_layers_keep_nothing(model: Any) -> None:
    whole, top = recipe(name="cross_thought"), recipe(name="cross_thought")
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


PEAKS = {  # dense TFLOP/s of bf16, or of fp16 where there is no bf16
    2250: ["NVIDIA B300 SXM6 AC", "NVIDIA B200"],
    1307: ["AMD Instinct MI300X"],
    989: ["NVIDIA GH200 480GB", "NVIDIA H200", "NVIDIA H100 80GB HBM3"],
    835: ["NVIDIA H200 NVL", "NVIDIA H100 NVL"],
    756: ["NVIDIA H100 PCIe"],
    362: ["NVIDIA L40S"],
    312: ["NVIDIA A100-SXM4-80GB", "A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB"],
    191.5: ["AMD Instinct MI250X / MI250"],  # one of its two dies
    181: ["NVIDIA L40"],
    165: ["NVIDIA GeForce RTX 4090"],
    125: ["NVIDIA A10", "Tesla V100-SXM2-32GB"],
    121: ["NVIDIA L4"],
    112: ["Tesla V100-PCIE-16GB"],
    70: ["NVIDIA A10G"],
    65: ["Tesla T4"],
}
OTHERS = ["NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA T400", "Quadro T1000", "NVIDIA A100X", ""]


def test_peaks_are_dense_ones_and_similar_names_are_of_other_devices() -> None:
    expected = {name: tera * TERA for tera, names in PEAKS.items() for name in names}
    assert {name: peak_of(name) for name in [*expected, *OTHERS]} == expected | dict.fromkeys(OTHERS)


def test_every_gpu_has_a_driver_s_name_and_plausible_sizes() -> None:
    assert set(NAMES.values()) == set(GPUS)
    for gpu in GPUS.values():
        assert 50 * TERA < gpu.peak < 3000 * TERA
        assert 16e9 <= gpu.memory <= 288e9
        assert gpu.within < gpu.memory_bandwidth
        assert 100 < gpu.peak / gpu.memory_bandwidth < 450  # operations for each byte
