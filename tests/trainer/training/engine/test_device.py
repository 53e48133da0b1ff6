"""Which device is trained on, GPUs that torch cannot use, which rank has which; what a device can hold and compute."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.distributed import HashStore

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.training.engine import device, ds_config
from deepsiam.trainer.training.engine.device import (
    has_bf16,
    require_own_gpu,
    require_visible_gpus,
    set_device,
    this_device,
    unseen_gpus,
)
from deepsiam.trainer.training.engine.hardware import GPUS, NAMES, peak_of
from deepsiam.trainer.training.engine.memory import bytes_per_token, check_memory
from deepsiam.trainer.training.recipe.build import build_model
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests.toy import SEED_RECIPE

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021\nGCC version: 9\n"


def gpu(monkeypatch: pytest.MonkeyPatch, *, major: int, seen: int = 1, uuid: str = "GPU-1") -> Mock:
    """Let DeepSpeed choose a GPU of a compute capability."""
    fake = Mock(**{"device_name.return_value": "cuda", "device_count.return_value": seen})
    fake.is_fp16_supported.return_value = major >= 7
    fake.current_device_name.return_value = "cuda:0"
    monkeypatch.setattr(device, "accelerator", lambda: fake)
    monkeypatch.setattr(ds_config, "accelerator", lambda: fake)
    properties = SimpleNamespace(major=major, uuid=uuid)
    for name, value in {"is_available": True, "current_device": 0, "get_device_properties": properties}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    return fake


def files(monkeypatch: pytest.MonkeyPatch, folder: Path, **contents: str) -> None:
    """Let a folder stand for the root of the file system; torch sees no accelerator."""
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(device, "ROOT", folder)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for name in (device.CHOICE, *device.VISIBLE):
        monkeypatch.delenv(name, raising=False)


def test_ds_accelerator_decides_even_where_torch_sees_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # DS_ACCELERATOR is cpu in all tests
    assert this_device() == torch.device("cpu")
    assert ds_config.fastest() in ("cpu", "zero1_bf16")


@pytest.mark.parametrize(("major", "name"), [(9, "zero1_bf16"), (8, "zero1_bf16"), (7, "zero1_fp16"), (6, "cpu")])
def test_auto_is_bf16_on_a_gpu_that_computes_in_it(monkeypatch: pytest.MonkeyPatch, major: int, name: str) -> None:
    gpu(monkeypatch, major=major)
    assert ds_config.fastest() == name
    assert ds_config.load("auto")[0].stem == name
    assert this_device() == torch.device("cuda:0")


def test_a_driver_too_old_is_one_line_with_versions_and_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files(monkeypatch, tmp_path, proc__driver__nvidia__version=DRIVER, dev__nvidia0="")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(InputError) as refused:
        require_visible_gpus()
    assert str(refused.value) == (
        f"this host has NVIDIA GPUs, and torch sees none: torch {torch.__version__} is built for CUDA 12.8, the driver "
        "is 470.57.02: update the driver, or install another torch; or set DS_ACCELERATOR=cpu to train on CPUs"
    )
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    assert unseen_gpus()
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    require_visible_gpus()


def test_a_torch_without_cuda_and_a_variable_that_hides_gpus_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files(monkeypatch, tmp_path, **{"proc__driver__nvidia__gpus__0000:01:00.0": ""})
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    assert "(CUDA_VISIBLE_DEVICES=NoDevFiles may hide them)" in unseen_gpus()
    assert "built without CUDA, the driver is unknown" in unseen_gpus()


AMD_MEMORY = "sys__class__drm__card0__device__mem_info_vram_total"


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({AMD_MEMORY: "68702699520\n"}, "this host has AMD GPUs"),
        ({AMD_MEMORY: "536870912\n"}, ""),  # part of the host's own memory
        ({AMD_MEMORY: ""}, ""),
        ({"dev__nvidiactl": "", "dev__dri": ""}, ""),
        ({"dev__nvidia0": ""}, "this host has NVIDIA GPUs"),
    ],
)
def test_gpus_count_if_they_have_their_own_memory_and_torch_sees_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, contents: dict[str, str], said: str
) -> None:
    files(monkeypatch, tmp_path, **contents)
    assert unseen_gpus().startswith(said)
    assert bool(unseen_gpus()) == bool(said)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert unseen_gpus() == ""


def test_a_rank_takes_its_gpu_whether_it_sees_all_or_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for seen, numbers in {8: [0, 1, 2, 3], 1: [0, 0, 0, 0], 2: [0, 1, 0, 1]}.items():
        fake = gpu(monkeypatch, major=9, seen=seen)
        assert [set_device(local_rank) for local_rank in range(4)] == numbers
        assert [call.args[0] for call in fake.set_device.call_args_list] == numbers


def test_two_ranks_on_one_gpu_are_refused_and_two_that_see_different_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = HashStore()
    for rank in range(2):  # on CPUs they share what they like
        require_own_gpu(rank, rank, store)
    gpu(monkeypatch, major=9, uuid="GPU-a")
    with ThreadPoolExecutor(8) as pool:
        outcomes = [pool.submit(require_own_gpu, rank, rank, store).exception() for rank in range(8)]
    (first,) = (rank for rank, outcome in enumerate(outcomes) if outcome is None)
    require_own_gpu(first, first, store)
    other = 0 if first else 1
    with pytest.raises(InputError, match=f"^rank {other} has the same GPU as rank {first}: start one rank for each"):
        require_own_gpu(other, other, store)
    gpu(monkeypatch, major=9, uuid="GPU-b")
    require_own_gpu(other, other, store)


def test_under_torchrun_there_must_be_a_gpu_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch, major=9, seen=2)
    require_own_gpu(1, 1, None)
    with pytest.raises(InputError, match="^rank 2 has the same GPU as another rank"):
        require_own_gpu(2, 2, None)


def test_a_gpu_that_emulates_bf16_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch, major=7)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert not has_bf16()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="for a host without GPUs")
def test_deepspeed_says_nothing_about_a_host_without_gpus() -> None:
    environment = {name: value for name, value in os.environ.items() if name != device.CHOICE}
    command = [sys.executable, "-c", "from deepsiam.trainer.training.engine import world; world.deepspeed.accelerator"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
    assert set(NAMES.values()) == set(GPUS)
    expected = {name: tera * TERA for tera, names in PEAKS.items() for name in names}
    assert {name: peak_of(name) for name in [*expected, *OTHERS]} == expected | dict.fromkeys(OTHERS)
