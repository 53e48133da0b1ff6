"""How well fine-tuned models rank over their steps, or over the labels that they were trained on (SEED, Figure 7)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.figures import COLORS, GREY, new_figure, save
from deepsiam.data_prep.common.files import make_directory, refuse_folder, sha256_of, whole_file
from deepsiam.data_prep.common.json_file import Count, Record, read_json
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metric, more_metrics
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.ranker import usual_precision
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained, recipe_of
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.open_pairs import EXAMPLES_OF_A_UNIT
from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.recipe.data_keys import PairSourceConfig
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe

OVER = {"steps": "fine-tuning step", "labels": "labelled pairs"}  # the label of each horizontal axis


class Point(NamedTuple):
    """A checkpoint's place on a curve."""

    x: int
    value: float


class _Measured(Record):
    """What was measured of a checkpoint."""

    checkpoint: str
    steps: Count
    labels: Count | None = None  # of its own data; known only of those that were drawn over labels
    value: float
    precision: str | None = None  # older code did not say


class _Results(Record):
    """The file of what was measured, by the SHA-256 of the checkpoints' manifests."""

    about: dict[str, Any]
    checkpoints: dict[str, _Measured]


def print_learning(arguments: argparse.Namespace) -> None:
    """Measure the runs that the arguments name, print their curves as a table, and draw them."""
    require("evaluate", "matplotlib", "bm25s", "ir_measures", "pytrec_eval")
    more_metrics([arguments.metric], "--metric")
    refuse_folder(arguments.out)
    results = arguments.out.with_suffix(".json")
    if results == arguments.out:
        raise InputError(f"--out {results}: the numbers are kept there, beside the figure: name a file FIGURE.png")
    task = Task.of(Collection.open(arguments.collection), arguments.split)
    make_directory(arguments.out.parent)
    curves = measure(task, arguments.split, arguments.runs, arguments.over, arguments.metric, results)
    flat = bm25(task, arguments.metric) if arguments.bm25 else None
    print("\n".join(table(curves, arguments.over)))
    if flat is not None:
        print(f"BM25 {flat:.4f}")
    print(draw(curves, arguments.over, arguments.metric, flat, arguments.out))


def checkpoints_of(run: Path, over: str) -> list[Path]:
    """Return a run's checkpoints to plot: all over steps, the newest over labels; a checkpoint is its own point."""
    if (run / checkpoint.MANIFEST).is_file():
        return [run]
    checkpoints = sorted(checkpoint.newest_first(run), key=checkpoint.step_of)
    if not checkpoints:
        raise InputError(f"{run}: has no checkpoint: name a fine-tuning run")
    return checkpoints if over == "steps" else checkpoints[-1:]


def measure(
    task: Task, split: str, runs: Sequence[tuple[str, Path]], over: str, metric: str, results: Path
) -> dict[str, list[Point]]:
    """Rank a task by the checkpoints of each run, and return each name's points by x.

    Values that `results` already has for this task and metric are not measured again, so a stopped command resumes.

    Args:
        task: the queries and the pool.
        split: the task's split.
        runs: names and run folders; runs of the same name are one curve.
        over: a key of OVER.
        metric: as `Metric.of` parses.
        results: a JSON file, written after each checkpoint.

    Raises:
        InputError: a run has no checkpoint or cannot search the collection, or `results` holds something else.
    """
    about = {"collection": task.collection.sha256, "split": split, "metric": metric}
    points_by_key, precision = _read(results, about), usual_precision(this_device())
    curves: dict[str, list[Point]] = {}
    for name, run in runs:
        for folder in checkpoints_of(run, over):
            key = sha256_of(folder / checkpoint.MANIFEST)
            measurement = points_by_key.get(key, {})
            if measurement.get("precision", precision) != precision:  # measured on another kind of device
                measurement = {}
            trained = None if measurement else load_trained(folder)
            # the labels are counted each time: earlier versions wrote wrong numbers into the file
            point = measurement | ({"labels": _labels(folder)} if over == "labels" else {})
            if trained:
                system = ranker_of(trained, task.collection).system(task)
                ranked = task.rank(system, max(DEPTH, Metric.of(metric).depth))
                value = task.measure(ranked, [metric]).means[metric]
                point |= {"checkpoint": str(folder), "steps": trained.step, "value": value, "precision": precision}
                print(f"{name}: {folder}: {Metric.of(metric).title} {value:.4f}", flush=True)
            if points_by_key.get(key) != point:
                points_by_key[key] = point
                _write(results, about, points_by_key)
            curves.setdefault(name, []).append(Point(point[over], point["value"]))
    return {name: sorted(points) for name, points in curves.items()}


def bm25(task: Task, metric: str) -> float:
    """Rank the task by BM25."""
    ranked = task.rank(Bm25Ranker(task.collection).system(task), max(DEPTH, Metric.of(metric).depth))
    return task.measure(ranked, [metric]).means[metric]


def draw(curves: Mapping[str, Sequence[Point]], over: str, metric: str, flat: float | None, out: Path) -> Path:
    """Plot each curve; `flat` is BM25's value, drawn as a horizontal line."""
    figure, (panel,) = new_figure(1, width=6.0, height=3.8)
    for color, (name, points) in zip(COLORS * len(curves), curves.items(), strict=False):
        panel.plot([p.x for p in points], [p.value for p in points], color=color, linewidth=2.0, marker="o", label=name)
    if flat is not None:
        panel.axhline(flat, color=GREY, linestyle="--", label="BM25")
    panel.legend(frameon=False)
    panel.set_xlabel(OVER[over])
    panel.set_ylabel(Metric.of(metric).title)
    panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    return save(figure, out)


def table(curves: Mapping[str, Sequence[Point]], over: str) -> Iterable[str]:
    """Yield a table as lines: a column for each curve, a row for each x, and one more for each further point there."""
    width = max(len(OVER[over]), 10)
    yield f"{OVER[over]:>{width}}" + "".join(f"  {name:>10}" for name in curves)
    for x in sorted({point.x for points in curves.values() for point in points}):
        columns = [[f"{point.value:.4f}" for point in points if point.x == x] for points in curves.values()]
        for cells in zip_longest(*columns, fillvalue=""):
            cells_by_name = zip(curves, cells, strict=True)
            yield f"{x:>{width},}" + "".join(f"  {cell:>{max(10, len(name))}}" for name, cell in cells_by_name)


def _labels(folder: Path) -> int:
    """Count the labelled pairs, or groups, that a checkpoint was trained on, over all sources of its own data."""
    recipe = recipe_of(folder)
    if not isinstance(recipe, FinetuneRecipe):
        raise InputError(f"{folder}: a pre-training, which has no labels: name fine-tuning runs")
    sources = zip(recipe.data.sources.items(), recipe.methods, strict=True)
    try:
        # training refuses a number of pairs that the data do not have
        return sum(source.pairs or _examples(name, source, method, recipe.seed) for (name, source), method in sources)
    except InputError as error:
        raise InputError(f"{folder}: cannot count the labels that it was trained on: {error}") from None


def _examples(name: str, source: PairSourceConfig, method: MatchingConfig, seed: int) -> int:
    collection, section = Collection.open(source.collection), f"data.mix.{name}" if name else "data"
    return len(GroupSource(collection, source.split, method.unit, None, seed, section, unit=EXAMPLES_OF_A_UNIT))


def _read(results: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Read what was measured before for this task."""
    if not results.exists():
        return {}
    content = read_json(results, _Results, "not written by this command: name another --out")
    if content.about != about:
        raise InputError(f"{results}: of another collection, split or metric: name another --out")
    return {key: point.model_dump(exclude_none=True) for key, point in content.checkpoints.items()}


def _write(results: Path, about: Mapping[str, Any], points: Mapping[str, Any]) -> None:
    with whole_file(results) as file:
        file.write((json.dumps({"about": about, "checkpoints": points}, indent=1) + "\n").encode())
