"""The device: which one DeepSpeed trains on, which GPUs torch cannot use, and which rank has which."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch.distributed import HashStore

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine import device, ds_config
from deepsiam.trainer.training.engine.device import (
    has_bf16,
    require_own_gpu,
    require_visible_gpus,
    set_device,
    this_device,
    unseen_gpus,
)

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


@pytest.mark.parametrize(("seen", "numbers"), [(8, [0, 1, 2, 3]), (1, [0, 0, 0, 0]), (2, [0, 1, 0, 1])])
def test_a_rank_takes_its_gpu_whether_it_sees_all_or_only_its_own(
    monkeypatch: pytest.MonkeyPatch, seen: int, numbers: list[int]
) -> None:
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
