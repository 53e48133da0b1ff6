"""How well fine-tuned models rank over their steps, or over the labels that they were trained on (SEED, Figure 7)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.common.errors import InputError
from data_prep.common.files import sha256_of, whole_file
from data_prep.common.json_file import Count, Record, read_json
from trainer.analysis.plots import COLORS, GREY, new_figure, save
from trainer.ranking.evaluation.metrics import DEPTH, Metric
from trainer.ranking.evaluation.task import Task
from trainer.ranking.rankers.bm25 import Bm25Ranker
from trainer.ranking.rankers.registry import ranker_of
from trainer.training.checkpoints import checkpoint
from trainer.training.checkpoints.load import TrainedModel, load_trained
from trainer.training.recipe.schema import FinetuneRecipe

OVER = {"steps": "fine-tuning step", "labels": "labelled pairs"}  # the label of each horizontal axis


class Point(NamedTuple):
    """A checkpoint's place on a curve."""

    x: int
    value: float


class _Measured(Record):
    """What was measured of a checkpoint."""

    checkpoint: str
    steps: Count
    labels: Count
    value: float


class _Results(Record):
    """The file of what was measured, by the SHA-256 of the checkpoints' manifests."""

    about: dict[str, Any]
    checkpoints: dict[str, _Measured]


def checkpoints_of(run: Path, over: str) -> list[Path]:
    """Return a run's checkpoints to plot: all over steps, the newest over labels; a checkpoint is its own point."""
    if (run / checkpoint.MANIFEST).is_file():
        return [run]
    found = sorted(checkpoint.newest_first(run), key=checkpoint.step_of)
    if not found:
        raise InputError(f"{run}: has no checkpoint: name a fine-tuning run")
    return found if over == "steps" else found[-1:]


def measure(
    task: Task, split: str, runs: Sequence[tuple[str, Path]], over: str, metric: str, results: Path
) -> dict[str, list[Point]]:
    """Rank a task by the checkpoints of each run, and return each name's points by x; BM25 is one point, without x.

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
    known = _read(results, about)
    curves: dict[str, list[Point]] = {}
    for name, run in runs:
        for folder in checkpoints_of(run, over):
            key = sha256_of(folder / checkpoint.MANIFEST)
            if key not in known:
                trained = load_trained(folder)
                system = ranker_of(trained, task.collection).system(task)
                ranked = task.rank(system, max(DEPTH, Metric.of(metric).depth))
                value = task.measure(ranked, [metric]).means[metric]
                known[key] = {"checkpoint": str(folder), "steps": trained.step, "labels": _labels(trained, task)}
                known[key] |= {"value": value}
                _write(results, about, known)
                print(f"{name}: {folder}: {Metric.of(metric).title} {value:.4f}", flush=True)
            curves.setdefault(name, []).append(Point(known[key][over], known[key]["value"]))
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
    """Yield a table as lines: a row for each x, a column for each curve."""
    values = {name: {point.x: point.value for point in points} for name, points in curves.items()}
    width = max(len(OVER[over]), 10)
    yield f"{OVER[over]:>{width}}" + "".join(f"  {name:>10}" for name in values)
    for x in sorted({x for by_x in values.values() for x in by_x}):
        cells = (f"{by_x[x]:.4f}" if x in by_x else "" for by_x in values.values())
        named = zip(values, cells, strict=True)
        yield f"{x:>{width},}" + "".join(f"  {cell:>{max(10, len(name))}}" for name, cell in named)


def _labels(trained: TrainedModel, task: Task) -> int:
    """Count the labelled pairs, or groups, that a model was trained on."""
    recipe = trained.recipe
    if not isinstance(recipe, FinetuneRecipe):
        raise InputError(f"{trained.checkpoint}: a pre-training, which has no labels: name fine-tuning runs")
    every: int = task.collection.manifest["counts"]["splits"].get(recipe.data.split, 0)
    return min(recipe.data.pairs or every, every)


def _read(results: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Read what was measured before for this task."""
    if not results.exists():
        return {}
    content = read_json(results, _Results, "not written by this command: name another --out")
    if content.about != about:
        raise InputError(f"{results}: of another collection, split or metric: name another --out")
    return {key: point.model_dump() for key, point in content.checkpoints.items()}


def _write(results: Path, about: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    with whole_file(results) as file:
        file.write((json.dumps({"about": about, "checkpoints": known}, indent=1) + "\n").encode())
