"""Cost curves with their laws: a training step by what makes it longer, preparation by size, resuming by lanes.

    OMP_NUM_THREADS=1 python -m benchmarks.costs.curves [--curves NAME ...] [--minutes 8] [--out FILE.json]

The sizes of a curve take turns; each gets the median CPU seconds of the rounds, in one thread. A step is forward and
backward in fp32, without DeepSpeed (benchmarks.costs.pieces); preparation is the command `data_prep jsonl` in this
process; resuming is the time to the first micro-batch of every lane from a position in the middle of an epoch, which
verifies the shards. All are small: benchmarks.costs.curve_cases lists the sizes, and the law that is expected.

A law is a fixed part and a part that grows by a power of the size, fitted to the medians; the range of its exponent
comes from fitting each round by itself. The slope is the log-log slope over the upper half of the sizes, including the
fixed part: where two parts grow by different powers, it approaches the larger power. Writes JSON, and a PNG with a
panel for each curve.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.common import machine
from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.curve_fit import Law, fit, slope
from benchmarks.common.machine import use_one_thread
from benchmarks.common.side_by_side import Values, in_words, rounds, run_all, spread, write
from benchmarks.costs.curve_cases import CURVES, Curve
from deepsiam.data_prep.common import figures
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUT = Path(__file__).parents[1] / "results" / "curves.json"
COLUMNS = 3  # panels in a row


def measure(curve: Curve, seconds: float) -> dict[str, Any]:
    """Measure a curve within about `seconds`; raise TooLongError where three rounds need more."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        works = {size: curve.prepare(size, Path(folder)) for size in curve.sizes}
        for work in works.values():
            cpu_seconds(work)
        values = rounds({f"{size:g}": partial(cpu_seconds, work) for size, work in works.items()}, end)
    return in_numbers(curve, values)


def in_numbers(curve: Curve, values: Values) -> dict[str, Any]:
    """Fit the law of a curve to the seconds of each size by round."""
    by_size = list(values.values())
    by_round = list(zip(*by_size, strict=True))
    medians = [median(seconds) for seconds in by_size]
    return {
        "unit": curve.unit,
        "sizes": list(curve.sizes),
        "rounds": len(by_round),
        "seconds": [spread(seconds) for seconds in by_size],
        "law": fit(curve.sizes, medians)._asdict(),
        "exponents": spread([fit(curve.sizes, seconds).exponent for seconds in by_round]),
        "slope": slope(curve.sizes, medians),
        "expected": {"exponent": curve.exponent, "law": curve.law},
    }


def lines_of(name: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines to print for a curve."""
    exponents, expected = result["exponents"], result["expected"]
    for size, seconds in zip(result["sizes"], result["seconds"], strict=True):
        yield in_words(f"{name}: {size:g} {result['unit']}", seconds, "s")
    yield f"{name}: {law_of(result)} s, slope over the upper sizes {result['slope']:.2f}, {result['rounds']} rounds"
    yield (
        f"{name}: exponent {result['law']['exponent']:.2f} ({exponents['min']:.2f} to {exponents['max']:.2f}), "
        f"expected {expected['exponent']}: {expected['law']}"
    )


def law_of(result: Mapping[str, Any]) -> str:
    """Format the law of a curve as a formula of its size n."""
    law = Law(**result["law"])
    return f"{law.fixed:.3g} + {law.factor:.3g} n^{law.exponent:.2f}"


def draw(curves: Mapping[str, Mapping[str, Any]], path: Path) -> Path:
    """Draw a panel for each curve, and write a PNG."""
    figure, panels = figures.new_figure(COLUMNS, width=3.2, height=2.6, rows=-(-len(curves) // COLUMNS))
    for panel, (name, result) in zip(panels, curves.items(), strict=False):
        draw_curve(panel, name, result)
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    return figures.save(figure, path)


def draw_curve(panel: Axes, name: str, result: Mapping[str, Any]) -> None:
    """Draw the median and range of every size, and the law, on two logarithmic axes."""
    sizes, seconds = np.array(result["sizes"], dtype=np.float64), result["seconds"]
    low, middle, high = (np.array([numbers[key] for numbers in seconds]) for key in ("min", "median", "max"))
    panel.errorbar(sizes, middle, yerr=[middle - low, high - middle], fmt="o", color=figures.COLORS[0], capsize=2)
    grid = np.geomspace(sizes[0], sizes[-1], 100)
    panel.plot(grid, Law(**result["law"]).at(grid), color=figures.COLORS[1], linewidth=1)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel(result["unit"], fontsize="small")
    panel.set_ylabel("CPU seconds", fontsize="small")
    panel.set_title(f"{name}: {law_of(result)}\nexpected exponent: {result['expected']['exponent']}", fontsize="small")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.costs.curves", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--curves", nargs="+", choices=CURVES, default=list(CURVES), metavar="NAME", help="%(choices)s")
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything (%(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE.json", help="(%(default)s)")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.costs.curves"):
        require("evaluate", "matplotlib")
        end = time.monotonic() + 60 * chosen.minutes
        use_one_thread()
        jobs = {name: partial(measure, CURVES[name]) for name in chosen.curves}
        curves, skipped = run_all(jobs, end, lines_of)
        write(chosen.out, {"machine": machine.describe(), "curves": curves, "skipped": skipped})
        if curves:
            print(f"wrote {draw(curves, chosen.out.with_suffix('.png'))}")


if __name__ == "__main__":
    main()
