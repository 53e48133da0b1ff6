"""The machine that a benchmark runs on: its description for the results, its matrix peak, memory of a process."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import time
from pathlib import Path
from typing import Any

import torch

from deepsiam.data_prep.common.environment import usable_cores
from deepsiam.trainer.training.run.versions import git_commit

FLAGS = {"amx_tile": "AMX", "amx_bf16": "AMX-BF16", "avx512_bf16": "AVX512-BF16", "avx512f": "AVX512", "avx2": "AVX2"}
PACKAGES = ("torch", "deepspeed", "transformers")
PEAK_SECONDS = 0.5  # for each size of matrix


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU, as DeepSpeed chooses."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def use_one_thread() -> None:
    """Compute in one thread; more would also measure the number of threads and how busy their cores are.

    numpy's BLAS reads OMP_NUM_THREADS only once, when it is loaded: set it for the whole process.
    """
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def synchronize() -> None:
    """Wait until the device has finished its work; a CPU always has."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def describe() -> dict[str, Any]:
    """Describe what the numbers depend on: processor, GPU, threads, versions, commit."""
    cpu = _cpu_info()
    present = set(cpu.get("flags", "").split())
    return {
        "cpu": cpu.get("model name", "unknown"),
        "instructions": [name for flag, name in FLAGS.items() if flag in present],
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
        "commit": git_commit(Path(__file__).parent),
    }


def matrix_peak(dtype: torch.dtype) -> float:
    """Measure the best rate of a large matrix product, in FLOP/s: the roof of any step on this device."""
    sizes = (4096, 8192, 16384) if torch.cuda.is_available() else (512, 1024, 2048)
    return max(_matmul_rate(size, dtype) for size in sizes)


def highest_resident() -> int:
    """Return this process's highest resident size so far, in bytes; for a newly forked process, its present size."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _matmul_rate(size: int, dtype: torch.dtype) -> float:
    a, b = (torch.randn(size, size, device=device()).to(dtype) for _ in range(2))
    torch.mm(a, b)
    synchronize()
    best, end = 0.0, time.perf_counter() + PEAK_SECONDS
    while not best or time.perf_counter() < end:
        start = time.perf_counter()
        torch.mm(a, b)
        synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def _cpu_info() -> dict[str, str]:
    """Return the first processor's lines of /proc/cpuinfo; nothing where that file is missing."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().split("\n\n")[0].splitlines() if path.is_file() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
