"""What one optimizer step of pre-training costs, compared with other ways to take it, side by side in one run.

    python -m benchmarks.step [--cases NAME ...] [--minutes 8]         on a CPU, at small sizes
    python -m benchmarks.step --gpu [--minutes 8]                      on one GPU, at the papers' sizes
    python -m benchmarks.step --against DIR --cases seed-demo          whole runs; on a CPU
    python -m benchmarks.step --ranks                                  likewise

A step is forward, backward, clipping and AdamW on prepared micro-batches; benchmarks.data.loader measures the loader.

    deepsiam                trainer.training.engine.engine.Engine.step
    deepsiam, bf16          on a GPU, where the others train in fp16
    plain                   the same engine and losses; logits of all positions in fp32, full attention masks, inputs
                            padded to the longest
    bare loop               our model without DeepSpeed: half-precision weights, fp32 master copies, AdamW
    Hugging Face            transformers.Trainer, BertForMaskedLM; masked language modelling only; needs accelerate
    Hugging Face, compiled  the same with torch_compile; needs a C++ compiler or, on a GPU, triton

All rivals take the same steps in turn; a ratio compares tokens a second within one round. Only text tokens count. Also
reported: the share of this device's peak in matrix products, as measured here (counting for all rivals the operations
that deepsiam's step needs); the peak memory (on a GPU: allocated; on a CPU: by how much a process grows); and the parts
of our step (benchmarks.step.parts describes them; measured separately from the rates, with a wait between the parts),
and the time that the loop waits for the device after a step.

`--against` compares optimizer steps a second of `trainer.pretrain` with those of another checkout of this repository;
`--ranks` compares one core, two ranks and two threads. A run takes half a minute, and a comparison three runs of each
way: allow more --minutes for these.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.common import machine, ratio_chart
from benchmarks.common.ratio_chart import Bar
from benchmarks.common.side_by_side import Job, in_words, run_all, write
from benchmarks.common.step_cases import CASES, Workload, recipe_of, workload_of
from benchmarks.common.training import join_alone
from benchmarks.step import runs
from benchmarks.step.measures import OURS, measure
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.trainer.training.run.versions import git_commit

SMALL = "a trunk of 2 layers x 192, 8,192 words, few sequences: what a CPU can train in a benchmark's time"
RESULTS = Path(__file__).parents[1] / "results"
SCALING_CASE = "seed-demo"


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    with exit_on_input_error("benchmarks.step"):
        _check(chosen)
        end = time.monotonic() + 60 * chosen.minutes
        results: dict[str, Any] = {"machine": machine.describe(), "sizes": "full" if chosen.gpu else SMALL}
        with tempfile.TemporaryDirectory() as folder:
            results["cases"], results["skipped"] = run_all(jobs_of(chosen, Path(folder)), end, lines_of)
        write(chosen.out, results)
        if any("ratios" in case for case in results["cases"].values()):
            print(f"wrote {draw(results, chosen.out.with_suffix('.png'))}")
        if dist.is_initialized():
            dist.destroy_process_group()


def jobs_of(chosen: argparse.Namespace, folder: Path) -> dict[str, Job]:
    """Return everything that the command line asks for, by name."""
    if not chosen.against and not chosen.ranks:
        join_alone()
        peaks: dict[torch.dtype, float] = {}
        return {name: partial(one_case, name, chosen.gpu, peaks) for name in chosen.cases}
    jobs: dict[str, Job] = {}
    if chosen.against:
        ways = runs.against(chosen.against)
        commits = {name: git_commit(way.checkout) for name, way in ways.items()}
        jobs |= {
            f"{name}, whole runs": partial(whole_runs, name, ways, folder, {"commits": commits})
            for name in chosen.cases
        }
    if chosen.ranks:
        jobs[f"{SCALING_CASE}, ranks"] = partial(whole_runs, SCALING_CASE, runs.scaling(), folder, {})
    return jobs


def one_case(name: str, gpu: bool, peaks: dict[torch.dtype, float], seconds: float) -> dict[str, Any]:
    """Measure a case; `peaks` keeps the measured peak of each precision."""
    end = time.monotonic() + seconds
    workload = workload_of(recipe_of(name, gpu))
    dtype = workload.precision
    if dtype not in peaks:
        peaks[dtype] = machine.matrix_peak(dtype)
    sizes = {"recipe": CASES[name].recipe, "changes": CASES[name].changes(gpu), "shapes": shapes_of(workload)}
    return {**sizes, "peak_flops": peaks[dtype], **measure(workload, peaks[dtype], end - time.monotonic())}


def shapes_of(workload: Workload) -> dict[str, list[int]]:
    """Return the shapes of the arrays of the first micro-batch."""
    return {name: list(array.shape) for name, array in workload.steps[0].micro_batches[0].arrays.items()}


def whole_runs(
    name: str, ways: Mapping[str, runs.Way], folder: Path, more: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Compare whole runs of a case."""
    return {**more, **runs.compare(name, ways, folder, seconds)}


def lines_of(name: str, case: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines to print for a case."""
    for rival, numbers in case.get("rivals", {}).items():
        yield in_words(f"{name}: {rival}", numbers["tokens_per_second"], "tokens/s")
        memory = numbers["peak_memory_bytes"]
        yield f"    {numbers['step_seconds']['median']:.4f} s a step, {numbers['share_of_peak']:.1%} of the peak" + (
            f", {memory / 1e9:.2f} GB" if memory else ""
        )
    for way, numbers in case.get("steps_per_second", {}).items():
        yield in_words(f"{name}: {way}", numbers, "steps/s")
    for ratio, numbers in case["ratios"].items():
        yield in_words(f"{name}: {ratio}", numbers)
    for rival, reason in case.get("left_out", {}).items():
        yield f"{name}: without {rival}: {reason}"
    if parts := case.get("parts"):
        yield f"{name}: of our step " + ", ".join(f"{part} {share:.1%}" for part, share in parts.items())
        yield f"{name}: the loop's exchange after a step takes {case['exchange']:.1%} of both"


def draw(results: Mapping[str, Any], path: Path) -> Path:
    """Draw the ratios of all cases."""
    cases = results["cases"]
    rivals = [(name, ratio, numbers) for name, case in cases.items() for ratio, numbers in case["ratios"].items()]
    unit = "tokens/s" if any(ratio == f"{OURS} / plain" for _, ratio, _ in rivals) else "steps/s"
    bars = [Bar(name, f"{unit} of {ratio}", numbers) for name, ratio, numbers in rivals]
    return ratio_chart.draw(bars, results["machine"], path)


def _check(chosen: argparse.Namespace) -> None:
    """Raise for options that this machine cannot satisfy, before anything is measured."""
    require("evaluate", "matplotlib")
    has_gpu = torch.cuda.is_available()
    if chosen.gpu and not has_gpu:
        raise InputError("--gpu: torch finds no CUDA GPU here: leave it out, or install a torch for this machine's GPU")
    if chosen.gpu and torch.cuda.device_count() > 1:
        raise InputError("--gpu: there are several GPUs here, and one is measured: set CUDA_VISIBLE_DEVICES=0")
    if has_gpu and not chosen.gpu and not chosen.against and not chosen.ranks:
        raise InputError("this machine has a GPU: add --gpu, or hide it: CUDA_VISIBLE_DEVICES= DS_ACCELERATOR=cpu")
    if chosen.gpu and (chosen.against or chosen.ranks):
        raise InputError("--gpu: whole runs (--against, --ranks) are compared on a CPU only")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.step", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME", help="%(choices)s"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything (%(default)s)")
    parser.add_argument("--gpu", action="store_true", help="the papers' sizes, on one GPU")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout: compare whole runs with it")
    parser.add_argument("--ranks", action="store_true", help="compare whole runs with other ranks and threads")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="(benchmarks/results/...)")
    chosen = parser.parse_args(argv)
    kind = "runs" if chosen.against or chosen.ranks else "gpu" if chosen.gpu else "cpu"
    chosen.out = chosen.out or RESULTS / f"pretrain_step_{kind}.json"
    return chosen


if __name__ == "__main__":
    main()
