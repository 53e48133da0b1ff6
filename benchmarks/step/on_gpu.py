"""Measure optimizer steps at full size on one GPU: python -m benchmarks.step.on_gpu [--out FILE]

One rank takes the share of a rank of 8, so its optimizer holds 8 times the states: AdamW takes longer, and nothing is
sent. Each way is a recipe key, changed alone. `kernels` and `busy` (the milliseconds in which a kernel ran) are
PyTorch's profiler's; `share_of_peak` is that of an H100's data sheet, for the products that the step needs.

    seed, mlm       recipes/seed_base.yaml, recipes/mlm_base.yaml on 8 ranks
    siamese         recipes/finetune.yaml with BERT-base: batch.size=1024 batch.micro=128
    siamese-32      the same with batch.size=256 batch.micro=32
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import machine
from benchmarks.common.side_by_side import spread
from benchmarks.common.step_cases import Step
from benchmarks.common.training import join_alone
from benchmarks.step.full_size import CASES, RANKS, micro_batch_of, model_of, recipe_of
from benchmarks.step.measures import free
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.parser import Parser
from deepsiam.models.arrays import on_device
from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.cluster.planning.kernels import Kernels, attention_as_on_cuda
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.hardware import GPUS
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.recipe.objective import Objective
from deepsiam.trainer.training.recipe.schema import Recipe
from deepsiam.trainer.training.run.job import make_ready

RESULTS = Path(__file__).parents[1] / "results" / "step_on_gpu.json"
WAYS = {
    "as in the recipe": (),
    "compiled": ("compile=true",),
    "recomputed": ("activation_checkpointing=true",),
    "fp16": ("deepspeed=zero1_fp16",),
    "adapters": ("optimizer.train={lora: {rank: 16}}",),
}
ROUNDS, STEPS, WARM_UP = 5, 4, 4
HEAVIEST = 12  # kernels


def main() -> None:
    """Run the command."""
    parser = Parser(prog="benchmarks.step.on_gpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to add to (%(default)s)")
    chosen = parser.parse_args()
    with exit_on_input_error("benchmarks.step.on_gpu"):
        if not torch.cuda.is_available():
            raise InputError("no GPU: these steps are measured on one")
        join_alone()
        peak = machine.matrix_peak(torch.bfloat16)
        results = {"machine": machine.describe(), "measured_peak_tflops": round(peak / 1e12), "cases": {}}
        for name in chosen.cases:
            for way in chosen.ways:
                recipe = recipe_of(name, *WAYS[way], f"batch.size={recipe_of(name).batch.size // RANKS}")
                found = measure(recipe, flops_of(recipe_of(name)), peak)
                results["cases"].setdefault(name, {})[way] = found
                print(line(name, way, found), flush=True)
                chosen.out.write_text(json.dumps(results, indent=1) + "\n")


def flops_of(recipe: Recipe) -> float:
    """Count the FLOPs of the products in a rank's step, without the device."""
    with torch.device("meta"):
        model = model_of(recipe).to(torch.bfloat16)
    with attention_as_on_cuda(), Kernels() as kernels:
        sum(model(**on_device(micro_batch_of(recipe).arrays, "meta")).values()).backward()
    return recipe.batch.micro_batches / RANKS * sum(kernel.flops for kernel in kernels.started)


def measure(recipe: Recipe, flops: float, peak: float) -> dict[str, Any]:
    """Take the steps of one rank that is alone; return their milliseconds, kernels and memory."""
    on_gpu = torch.cuda.is_available()
    before = torch.cuda.memory_allocated() if on_gpu else 0  # DeepSpeed may keep some of the last engine
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(recipe.seed)
    model = model_of(recipe)
    recipe = make_ready(model, recipe)
    engine = Engine(model.train(), recipe, World.from_environment())
    step = Step([micro_batch_of(recipe)] * recipe.batch.micro_batches, list(range(recipe.batch.micro_batches)))
    start = time.perf_counter()
    for _ in range(WARM_UP):
        take(engine, step)
    started = time.perf_counter() - start
    values = [take(engine, step, STEPS) for _ in range(ROUNDS)]
    seconds = spread(values)["median"]
    found = {
        "milliseconds": {key: round(1e3 * value, 2) for key, value in spread(values).items()},
        "tokens_per_second": round(sum(batch.tokens for batch in step.micro_batches) / seconds),
        "share_of_peak": round(flops / seconds / GPUS["h100"].peak, 4),
        "share_of_measured_peak": round(flops / seconds / peak, 4),
        "warm_up_seconds": round(started, 1),
        "gigabytes": round((torch.cuda.max_memory_allocated() - before) / 1e9, 2) if on_gpu else None,
        **kernels_of(engine, step),
        "waits": waits_of(engine, step),
    }
    del engine, model
    free()
    return found


def take(engine: Engine, step: Step, times: int = 1) -> float:
    """Take a step some times without a wait between; return the seconds of one."""
    machine.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        engine.step(*_arguments(engine, step))
    machine.synchronize()
    return (time.perf_counter() - start) / times


def _arguments(engine: Engine, step: Step) -> tuple[Sequence[MicroBatch], Sequence[Objective], Sequence[int], float]:
    """Return those of `Engine.step`."""
    return step.micro_batches, [step.objective(engine.methods)] * len(step.micro_batches), step.seeds, 1e-4


def kernels_of(engine: Engine, step: Step) -> dict[str, Any]:
    """Profile one step: its kernels, the milliseconds in which one ran, and the heaviest by name."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as profiler:
        take(engine, step)
    ran = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    milliseconds, number = Counter[str](), Counter[str]()
    for event in ran:
        milliseconds[event.name] += event.device_time_total / 1e3
        number[event.name] += 1
    heaviest = {
        name: {"number": number[name], "milliseconds": round(value, 3)}
        for name, value in milliseconds.most_common(HEAVIEST)
    }
    return {"kernels": len(ran), "busy": round(sum(milliseconds.values()), 2), "heaviest": heaviest}


def waits_of(engine: Engine, step: Step) -> dict[str, int]:
    """Take a step; return where the host waited for the GPU, and how often."""
    if not torch.cuda.is_available():
        return {}
    torch.set_warn_always(True)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine.step(*_arguments(engine, step))
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.set_warn_always(False)
    waits = Counter(f"{'/'.join(Path(one.filename).parts[-3:])}:{one.lineno}" for one in caught)
    return dict(waits.most_common())


def line(name: str, way: str, found: Mapping[str, Any]) -> str:
    """Say in a line what was measured."""
    ms = found["milliseconds"]
    return (
        f"{name:10} {way:16} {ms['median']:7.1f} ms ({ms['min']:.1f} to {ms['max']:.1f})  "
        f"{found['share_of_peak']:.1%} of the peak  busy {found['busy']:.1f} ms  "
        f"{found['kernels']} kernels  {sum(found['waits'].values())} waits  "
        f"{found['gigabytes']} GB"
    )


if __name__ == "__main__":
    main()
