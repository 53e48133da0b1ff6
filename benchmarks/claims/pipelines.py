"""Quality against forward passes a query, as a Markdown table, from results of trainer.evaluate.

python -m benchmarks.claims.pipelines RESULTS.json [RESULTS.json ...]

Several files are of the same systems, trained with other seeds: every number is then the mean, and the first metric is
listed by seed, too. p compares it with that of the first system, in each seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.trainer.ranking.evaluation.results_file import Results, SystemResult, read_results
from deepsiam.trainer.ranking.evaluation.table import title


def table(seeds: Sequence[Results]) -> list[str]:
    """Return the lines of the table: a row for each system, the cheapest first; `seeds` have the same systems."""
    first, columns = seeds[0], seeds[0].about.columns
    base, tested = next(iter(first.systems)), first.about.tested
    heads = ["system", "forward passes a query", "seconds a query", *columns.values(), f"p against {title(base)}"]
    order = sorted(first.systems, key=lambda name: first.systems[name].passes or 0)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in order:
        systems = [results.systems[name] for results in seeds]
        passes = [system.passes for system in systems if system.passes is not None]
        seconds = [_seconds(system) / results.about.queries for system, results in zip(systems, seeds, strict=True)]
        cells = [title(name), f"{mean(passes):,.0f}" if passes else "", f"{mean(seconds):.3g}"]
        for metric in columns:
            values = [system.metrics[metric] for system in systems]
            cells.append(f"{mean(values):.4f}" + (_by_seed(values) if metric == tested else ""))
        p_values = [pair.p_value for results in seeds for pair in results.pairs if pair.systems == [base, name]]
        cells.append(", ".join(f"{p:.4f}" for p in p_values))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _seconds(system: SystemResult) -> float:
    """Return the seconds of all stages, those of encoding and indexing documents included."""
    return sum(stage.seconds or 0 for stage in system.stages)


def _by_seed(values: Sequence[float]) -> str:
    return f" ({', '.join(f'{value:.4f}' for value in values)})" if len(values) > 1 else ""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.pipelines", description="Quality against forward passes.")
    parser.add_argument("results", type=Path, nargs="+", help="files of trainer.evaluate, one for each seed")
    files = parser.parse_args(argv).results
    with exit_on_input_error("benchmarks.claims.pipelines"):
        seeds = [read_results(file) for file in files]
        for file, results in zip(files, seeds, strict=True):
            if results.systems.keys() != seeds[0].systems.keys():
                raise InputError(f"{file}: has other systems than {files[0]}: give files of the same ones")
        print("\n".join(table(seeds)))


if __name__ == "__main__":
    main()
