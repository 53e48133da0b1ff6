"""Measure one case of benchmarks.step: the rivals' rates in turn, memory, operations, the parts of a step."""

from __future__ import annotations

import gc
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.common import machine
from benchmarks.common.side_by_side import Values, ratios, rounds, spread
from benchmarks.common.step_cases import STEPS, Workload
from benchmarks.common.training import join_alone
from benchmarks.step import hugging_face
from benchmarks.step.hugging_face import NAME as HUGGING_FACE
from benchmarks.step.hugging_face import HuggingFace
from benchmarks.step.parts import count_flops, exchange_share, time_parts
from benchmarks.step.rivals import Bare, OurStep, Plain, StepRival
from deepsiam.data_prep.common.errors import printable

OURS, OURS_BF16, COMPILED = "deepsiam", "deepsiam, bf16", f"{HUGGING_FACE}, compiled"
WARM_UP = STEPS  # the whole workload; in fp16 more steps, until one does not overflow
MOST_WARM_UP = 20
COMPILING = 60 if torch.cuda.is_available() else 180  # the most seconds that torch.compile takes for a case
GRACE = 0.1  # share of a case's time that is left for its rounds even if building the rivals took all of it

Make = Callable[[Workload], StepRival]


def rivals_of(workload: Workload, seconds: float = math.inf) -> tuple[dict[str, Make], dict[str, str]]:
    """Return the rivals of a case that is measured in `seconds`, and why others are left out."""
    rivals: dict[str, Make] = {OURS: OurStep, "plain": Plain, "bare loop": Bare}
    if torch.cuda.is_available():
        rivals[OURS_BF16] = lambda w: OurStep(
            replace(w, recipe=w.recipe.model_copy(update={"deepspeed": "zero1_bf16"}))
        )
    left_out = {}
    for name, compiled in ((HUGGING_FACE, False), (COMPILED, True)):
        if reason := hugging_face.missing(workload, compiled):
            left_out[name] = reason
        elif compiled and seconds < COMPILING:
            left_out[name] = (
                f"this case has {seconds:.0f} s, and compiling takes up to {COMPILING}: give more --minutes"
            )
        else:
            rivals[name] = partial(HuggingFace, compiled=compiled)
    return rivals, left_out


def measure(workload: Workload, peak: float, seconds: float) -> dict[str, Any]:
    """Measure a case within about `seconds`; raise TooLongError where three rounds need more."""
    end = time.monotonic() + seconds
    makers, left_out = rivals_of(workload, seconds)
    rivals, memory = {}, cpu_memory(workload, [name for name in makers if name != COMPILED])
    try:
        for name, make in makers.items():
            try:
                rivals[name], allocated = start(make, workload)
            except Exception as error:  # one rival's failure must not cost the time of all
                if name == OURS:
                    raise
                left_out[name] = f"it failed: {type(error).__name__}: {printable(str(error))[:200]}"
                free()
            else:
                memory.setdefault(name, allocated)
        ours = rivals[OURS]
        assert isinstance(ours, OurStep)
        inside = inside_a_step(ours, workload)
        end = max(end, time.monotonic() + GRACE * seconds)  # a slow start alone should not cost the case
        values = rounds({name: rival.round for name, rival in rivals.items()}, end)
    finally:
        for rival in rivals.values():
            rival.close()
        rivals.clear()
        free()
    return in_numbers(workload, values, memory, peak, inside) | {"left_out": left_out}


def start(make: Make, workload: Workload) -> tuple[StepRival, int]:
    """Build a rival and let it warm up; return it with its peak memory on the GPU (0 on a CPU)."""
    on_gpu = torch.cuda.is_available()
    before = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    rival = make(workload)
    for taken in range(MOST_WARM_UP):
        rival.step()
        if taken + 1 >= WARM_UP and not rival.skipped:
            break
    return rival, torch.cuda.max_memory_allocated() - before if on_gpu else 0


def free() -> None:
    """Release the memory of former rivals."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def inside_a_step(ours: OurStep, workload: Workload) -> dict[str, Any]:
    """Count the operations of a step, and measure each part's share of its time."""
    flops = sum(count_flops(ours, step) for step in workload.steps)
    times = [time_parts(ours, step) for step in workload.steps]
    total = sum(sum(parts.values()) for parts in times)
    shares = {part: sum(parts[part] for parts in times) / total for part in times[0]}
    waits = [exchange_share(ours, step) for step in workload.steps]
    return {"flops_per_token": flops / workload.tokens, "parts": shares, "exchange": statistics.median(waits)}


def in_numbers(
    workload: Workload, seconds: Values, memory: Mapping[str, int], peak: float, inside: Mapping[str, Any]
) -> dict[str, Any]:
    """Turn the seconds per step of each round into rates, shares and ratios."""
    a_step = workload.tokens / len(workload.steps)
    rates = {name: [a_step / s for s in values] for name, values in seconds.items()}
    results = {
        name: {
            "tokens_per_second": spread(values),
            "step_seconds": spread(seconds[name]),
            # only the operations that our own step needs: a rival's unnecessary ones do not count
            "share_of_peak": inside["flops_per_token"] * statistics.median(values) / peak,
            "peak_memory_bytes": memory.get(name) or None,
        }
        for name, values in rates.items()
    }
    return {
        "precision": str(workload.precision).removeprefix("torch."),
        "rounds": len(seconds[OURS]),
        "tokens_a_step": a_step,
        "micro_batches_a_step": workload.recipe.batch.micro_batches,
        "batching_seconds_a_step": workload.batching_seconds,
        **inside,
        "rivals": results,
        "ratios": {f"{OURS} / {name}": ratios(rates[OURS], values) for name, values in rates.items() if name != OURS},
    }


def cpu_memory(workload: Workload, names: Sequence[str]) -> dict[str, int]:
    """Return by how many bytes each rival's process grows when it is built and warms up; nothing on a GPU.

    Each rival has its own process, forked from a server that has imported all modules and computed nothing.
    """
    if torch.cuda.is_available():
        return {}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    grown = {}
    for name in names:
        with ProcessPoolExecutor(1, context) as process:
            grown[name] = process.submit(_growth, workload, name).result()
    return grown


def _growth(workload: Workload, name: str) -> int:
    join_alone()
    before = machine.highest_resident()
    start(rivals_of(workload)[0][name], workload)
    return machine.highest_resident() - before
