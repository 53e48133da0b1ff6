"""What adapters and small vectors cost in quality: all-MiniLM-L6-v2 on the demo's docstrings.

    python -m benchmarks.claims.small_vectors [--seeds N]     (after make demo)

The encoder as it is, fine-tuned whole, with vectors that can be cut (`method.dimensions`), and so by adapters; each
ranks with all 384, with 128 and with 64 numbers a vector, kept as float16, as a byte and as a bit (the last two find
four times as many, which float16 scores again). Data, settings and queries are those of benchmarks.claims.rankers.
A stopped run resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.claims import material
from benchmarks.claims.rankers import MODELS, Bench, Model, command, encoder
from benchmarks.common.training import run_or_exit
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.ranking.evaluation.results_file import Results, read_results

START, METRIC = "minilm", "ndcg@10"
SIZES = (384, 128, 64)
DTYPES = ("float16", "int8", "binary")
DENSE = MODELS["dense"]
CUT = {**DENSE.settings, "method.dimensions": f"[{', '.join(map(str, SIZES))}]"}
TUNED = {
    "whole": DENSE,
    "whole_cut": Model(DENSE.recipe, CUT),
    "adapters_cut": Model(DENSE.recipe, {**CUT, "optimizer.train": "{lora: {rank: 16}}", "optimizer.lr": 5e-4}),
}
TITLES = {
    "published": "as published",
    "whole": "fine-tuned whole",
    "whole_cut": "the same, `dimensions`",
    "adapters_cut": "adapters, `dimensions`",
}


def results(bench: Bench, seed: int) -> Path:
    """Train and rank with a seed; return the file of trainer.evaluate."""
    file = bench.out / f"small_vectors-{seed}.json"
    if not file.is_file():
        systems = {"published": encoder()}
        systems |= {name: bench.tuned(name, model, START, seed) for name, model in TUNED.items()}
        found = {}
        for name, system in systems.items():
            for size in SIZES:
                for dtype in DTYPES:
                    row = f"{name}_{size}_{dtype}"
                    options = ("--dtype", dtype, "--dimensions", str(size))
                    made = f"{row}-{seed}" if name in TUNED else row
                    found[row] = bench.by_index(system, START, made, *options, splits=["test"])
        asked = ["--collection", str(bench.ranked(START)), "--split", "test", "--out", str(file)]
        run_or_exit(command("trainer.evaluate", *asked, *(f"--system={row}={run}" for row, run in found.items())))
    return file


def table(seeds: Sequence[Results]) -> list[str]:
    """Return the lines of the table: nDCG@10, means over the seeds and their range."""
    lines = [f"| | numbers a vector | {' | '.join(DTYPES)} |", "|---" * (2 + len(DTYPES)) + "|"]
    for name, title in TITLES.items():
        for size in SIZES:
            rows = [f"{name}_{size}_{dtype}" for dtype in DTYPES]
            cells = [_cell([one.systems[row].metrics for one in seeds]) for row in rows]
            lines.append(f"| {title} | {size} | {' | '.join(cells)} |")
    return lines


def _cell(metrics: Sequence[Mapping[str, float]]) -> str:
    values = [one[METRIC] for one in metrics]
    spread = f" ({min(values):.4f} to {max(values):.4f})" if min(values) < max(values) else ""
    return f"{mean(values):.4f}{spread}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.claims.small_vectors", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    parser.add_argument("--out", type=Path, default=Path("runs/rankers"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.small_vectors"):
        make_directory(chosen.out)
        files = [results(Bench(chosen.out), seed) for seed in range(1, chosen.seeds + 1)]
        material.show("\n".join(table([read_results(file) for file in files])), chosen.out / "small_vectors.md")


if __name__ == "__main__":
    main()
