"""Predict the time of optimizer steps on 8 H100: python -m benchmarks.step.roofline [--label before] [--out FILE]

Nothing is measured, and no GPU is needed. `Engine.step` runs under DeepSpeed as rank 0 of 8 on the fake GPU of
`tests/fake_gpu`, with the recipes' own models at full size. Every kernel that it starts, DeepSpeed's among them, is
counted with its bytes and FLOPs; `trainer/cluster/planning/roofline.py` says how long an H100 would take, and what that
assumes. Communication is not in it: `python -m trainer.plan` adds it.

    seed, mlm       recipes/seed_base.yaml, recipes/mlm_base.yaml on 8 ranks
    siamese         recipes/finetune.yaml with BERT-base: batch.size=1024 batch.micro=128
    siamese-32      the same with batch.size=256 batch.micro=32

With --compiled the layers' element-wise kernels are joined as torch.compile would (`fusion.py`): the recipe key
`compile`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from benchmarks.step.full_size import CASES, RANKS, micro_batch_of, model_of, recipe_of
from benchmarks.step.fusion import KernelsOfLayers, fused
from deepsiam.data_prep.common.parser import Parser
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import encoders_of, layers_of
from deepsiam.trainer.cluster.planning.kernels import Kernel
from deepsiam.trainer.cluster.planning.roofline import Roofline
from deepsiam.trainer.training.engine.hardware import DEVICES
from tests.fake_gpu import deepspeed_device, device, watch

RESULTS = Path(__file__).parents[1] / "results" / "roofline.json"
PARTS = ("products", "attention", "other kernels", "between kernels", "waiting for Python")
HEAVIEST = 12  # operations


@dataclass(frozen=True)
class Predicted:
    """A rank's optimizer step."""

    tokens: int
    kernels: int
    waits: int
    tflop: float
    gigabytes: float
    milliseconds: float
    share_of_peak: float
    parts: dict[str, float]  # milliseconds, by PARTS
    heaviest: dict[str, dict[str, float]]  # by operation: number, milliseconds, gigabytes


def main() -> None:
    """Run the command."""
    parser = Parser(prog="benchmarks.step.roofline", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--label", default="now", help="name of the column, such as before (%(default)s)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file to add to (%(default)s)")
    parser.add_argument("--compiled", action="store_true", help="the layers are compiled")
    chosen = parser.parse_args()
    device.install()
    watch.install()
    deepspeed_device.install()
    results = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for name in chosen.cases:
        results.setdefault(chosen.label, {})[name] = asdict(predict(name, compiled=chosen.compiled))
        print(table({chosen.label: {name: results[chosen.label][name]}}), flush=True)
    chosen.out.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, chosen.out.with_suffix(".png"))


def predict(case: str, *, compiled: bool = False) -> Predicted:
    """Count a rank's step and return its time on an H100."""
    from tests.fake_gpu.steps import count_step, engine_around  # after the accelerator is in place

    recipe = recipe_of(case)
    batches = [micro_batch_of(recipe)] * (recipe.batch.micro_batches // RANKS)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with unset_fake_temporarily(), torch.device("meta"):
            model = model_of(recipe)
        engine = engine_around(model, recipe)
        layers = [layer for encoder in encoders_of(model) for layer in layers_of(encoder)] if compiled else []
        kernels = KernelsOfLayers(device.GPU, layers)
        with kernels.hooked():
            _, waited = count_step(engine, batches, kernels)
    started = fused(kernels.all) if compiled else kernels.started
    return _predicted(started, sum(waited.waits.values()), batches)


def _predicted(started: list[Kernel], waits: int, batches: list[MicroBatch]) -> Predicted:
    gpu = DEVICES["h100"]
    roofline, counted = Roofline(gpu), Counter(started)
    rows: dict[str, dict[str, float]] = {}
    parts = dict.fromkeys(PARTS, 0.0)
    for kernel, number in counted.items():
        milliseconds = 1e3 * number * roofline.seconds(kernel)
        row = rows.setdefault(kernel.name, {"number": 0, "milliseconds": 0.0, "gigabytes": 0.0})
        row["number"] += number
        row["milliseconds"] += milliseconds
        row["gigabytes"] += number * kernel.bytes / 1e9
        part = "attention" if "attention" in kernel.name else "products" if kernel.flops else "other kernels"
        gaps = 1e3 * number * roofline.launch
        parts[part] += milliseconds - gaps
        parts["between kernels"] += gaps
    seconds, flops = roofline.total(counted), sum(kernel.flops for kernel in started)
    parts["waiting for Python"] = max(0.0, 1e3 * seconds - sum(parts.values()))
    heaviest = sorted(rows, key=lambda name: -rows[name]["milliseconds"])[:HEAVIEST]
    return Predicted(
        tokens=sum(batch.tokens for batch in batches),
        kernels=len(started),
        waits=waits,
        tflop=round(flops / 1e12, 3),
        gigabytes=round(sum(kernel.bytes for kernel in started) / 1e9, 2),
        milliseconds=round(1e3 * seconds, 2),
        share_of_peak=round(flops / seconds / gpu.peak, 4),
        parts={name: round(value, 2) for name, value in parts.items()},
        heaviest={name: {key: round(value, 3) for key, value in rows[name].items()} for name in heaviest},
    )


def draw(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw where the time of each step goes, a bar for each label."""
    from matplotlib.figure import Figure

    bars = [(case, label) for case in CASES for label in results if case in results[label]]
    figure = Figure(figsize=(8, 0.45 * len(bars) + 1.2), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(bars)
    for part in PARTS:
        widths = [results[label][case]["parts"][part] for case, label in bars]
        axes.barh(range(len(bars)), widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for i, (case, label) in enumerate(bars):
        axes.text(left[i], i, f" {results[label][case]['share_of_peak']:.0%}", va="center")
    axes.set_yticks(range(len(bars)), [f"{case}, {label}" for case, label in bars])
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set_xlabel("computed milliseconds of an optimizer step on 8 H100; % of the peak")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the predictions as text."""
    lines = []
    for label, cases in results.items():
        for name, one in cases.items():
            lines.append(
                f"{label:8} {name:10} {one['milliseconds']:7.1f} ms  {one['share_of_peak']:6.1%} of the peak  "
                f"{one['kernels']:6} kernels  {one['waits']:3} waits  {one['tflop']:6.2f} TFLOP  "
                f"{one['gigabytes']:6.1f} GB"
            )
            lines.append("    " + ", ".join(f"{part} {value:.1f} ms" for part, value in one["parts"].items()))
            lines += [
                f"    {row['milliseconds']:8.2f} ms {row['number']:6.0f} x {operation:48} {row['gigabytes']:7.2f} GB"
                for operation, row in one["heaviest"].items()
            ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
