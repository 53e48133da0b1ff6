"""The device of this process, and the GPUs that torch cannot use.

A rank sets its device when it joins the others, before the engine is made.
"""

import os
import re
from pathlib import Path
from typing import Any

import torch
from torch.distributed import Store

from deepsiam.data_prep.common.environment import usable_cores
from deepsiam.data_prep.common.errors import InputError

ROOT = Path("/")
CHOICE = "DS_ACCELERATOR"
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
OWN_MEMORY = 8e9  # bytes; an AMD GPU with less of its own is part of a processor, and not one to train on


def accelerator() -> Any:
    """Return what DeepSpeed trains on: DS_ACCELERATOR names it, else it is the GPU, if torch sees one."""
    from deepspeed.accelerator import get_accelerator  # imported here: not every command needs a device

    return get_accelerator()


def this_device() -> torch.device:
    """Return the device of this process, for training and for whatever uses a trained model."""
    return torch.device(accelerator().current_device_name())


def has_bf16() -> bool:
    """Return whether the device computes in bf16: GPUs before NVIDIA's Ampere and many CPUs only emulate it."""
    kind = accelerator().device_name()
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if kind == "cpu":
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return bool(accelerator().is_bf16_supported())


def set_device(local_rank: int) -> int:
    """Choose the device that a rank of this host uses from now on, and return its number.

    A launcher may show each rank only its own GPU, as `srun --gpus-per-task=1` does; that GPU is then number 0.
    """
    number = local_rank % max(1, accelerator().device_count())
    accelerator().set_device(number)
    return number


def use_threads_of_a_rank(ranks: int) -> None:
    """Compute with this rank's share of the host's usable cores, of `ranks` ranks, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" not in os.environ:  # torch would start a thread for each core, in every rank
        torch.set_num_threads(max(1, usable_cores() // ranks))


def require_own_gpu(rank: int, local_rank: int, store: Store | None) -> None:
    """Raise InputError if another rank uses the same GPU.

    If every rank sees one GPU as number 0, two ranks may share it unnoticed: so the ranks compare the GPUs' UUIDs
    through the store where they meet. torchrun's ranks have no such store, but all see the same GPUs.
    """
    if accelerator().device_name() != "cuda":
        return
    shared = "" if store or local_rank < accelerator().device_count() else "another rank"
    if store:  # of the ranks with one GPU, the first to write its number is the owner
        identifier = torch.cuda.get_device_properties(accelerator().current_device()).uuid
        owner = int(store.compare_set(f"deepsiam/gpu/{identifier}", "", str(rank)))
        shared = f"rank {owner}" if owner != rank else ""
    if shared:
        raise InputError(
            f"rank {rank} has the same GPU as {shared}: start one rank for each GPU of a host (slots= of the hostfile, "
            "--num_gpus, --nproc-per-node, --ntasks-per-node), and let every rank see all of them or its own"
        )


def require_visible_gpus() -> None:
    """Raise InputError if this host has GPUs and torch sees none: DeepSpeed would warn, and train on CPUs."""
    if reason := unseen_gpus():
        raise InputError(f"{reason}; or set {CHOICE}=cpu to train on CPUs")


def settle_on_cpu() -> bool:
    """Return whether this host trains on CPUs, and tell DeepSpeed, which would warn about it as it is imported.

    Raise InputError if it has GPUs and torch sees none.
    """
    require_visible_gpus()
    if not torch.accelerator.is_available():
        os.environ.setdefault(CHOICE, "cpu")
    return os.environ.get(CHOICE) == "cpu"


def unseen_gpus() -> str:
    """Return why torch sees none of this host's GPUs; empty if it sees one, there is none, or CPUs are asked for."""
    if torch.accelerator.is_available() or os.environ.get(CHOICE) == "cpu":
        return ""
    version = f"torch {torch.__version__} is built"
    if any(ROOT.glob("proc/driver/nvidia/gpus/*")) or any(ROOT.glob("dev/nvidia[0-9]*")):
        maker, cuda = "NVIDIA", torch.version.cuda
        path = ROOT / "proc/driver/nvidia/version"
        driver = re.search(r"\b\d{3,}\.[\d.]+", path.read_text(errors="replace")) if path.is_file() else None
        built_for = f"for CUDA {cuda}" if cuda else "without CUDA"
        why = f"{version} {built_for}, the driver is {driver[0] if driver else 'unknown'}"
    elif any(_bytes(path) > OWN_MEMORY for path in ROOT.glob("sys/class/drm/card*/device/mem_info_vram_total")):
        maker, why = (
            "AMD",
            f"{version} for ROCm {torch.version.hip}" if torch.version.hip else f"{version} without ROCm",
        )
    else:
        return ""
    hidden = "".join(f" ({name}={os.environ[name]} may hide them)" for name in VISIBLE if name in os.environ)
    return (
        f"this host has {maker} GPUs, and torch sees none{hidden}: {why}: update the driver, or install another torch"
    )


def _bytes(path: Path) -> int:
    text = path.read_text().strip()
    return int(text) if text.isdigit() else 0
