"""Compare systems that rank a split's queries over its pool of documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import IdenticalIds
from deepsiam.trainer.ranking.evaluation import run_file
from deepsiam.trainer.ranking.evaluation.expression import Expression, walk
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metric
from deepsiam.trainer.ranking.evaluation.parts import Parts
from deepsiam.trainer.ranking.evaluation.results_file import About, Identical, Results, results_of
from deepsiam.trainer.ranking.evaluation.systems import Choice, Systems
from deepsiam.trainer.ranking.evaluation.task import Task


def compare(
    systems: Systems,
    split: str,
    write_runs: Path | None = None,
    metrics: Sequence[str] = (),
    identical_ids: IdenticalIds = "auto",
    by_query: bool = False,
) -> Results:
    """Evaluate every system on a split; write a run file of each to a folder, if there is one.

    `metrics` are in addition to those of HEADINGS; `identical_ids` is as in `data_prep.collections.relevant.left_out`;
    `by_query` keeps the values of each query.

    Raises:
        InputError: a system cannot be used as it is given; raised before the first is evaluated.
    """
    systems.check(split)
    depth = max([DEPTH, *(Metric.of(name).depth for name in metrics)])
    choices = systems.choices(split)
    task = Task.of(systems.collection, split, identical_ids)
    given = {name: expression for name, expression, _ in systems.given}
    parts = Parts(systems, task, depth, [*given.values()], choices)
    choosing = _choosing(systems, parts, choices, identical_ids)
    ranked = {}
    for name, expression in given.items():
        chosen = {part: choices[part] for part in walk(expression) if part in choices and choices[part].pending}
        for part, choice in chosen.items():  # each part after those that it is made of
            choices[part] = choice._replace(weight=choosing[choice.split].best_weight(part))
        ranked[name] = parts.rank(expression, depth)
        parts.done(expression)
        for part, choice in chosen.items():
            choosing[choice.split].done(part)
    measured = {name: task.measure(rankings, metrics) for name, rankings in ranked.items()}
    if write_runs:
        for name, rankings in ranked.items():
            of_queries = zip(task.qrels, rankings, strict=True)
            run_file.write(write_runs / f"{name}.trec", of_queries, task.name, name)
    about = About(
        collection=str(systems.collection.directory),
        collection_sha256=systems.collection.sha256,
        precision=systems.precision,
        split=split,
        queries=len(task.queries),
        corpus=len(task.pool),
        ignore_identical_ids=Identical(rule=identical_ids, queries=task.identical),
        metrics=list(metrics),
        remarks=[*parts.remarks, *_excluded(systems.collection, task)],
    )
    made = {name: (str(expression), parts.stages(expression)) for name, expression in given.items()}
    return results_of(measured, made, about, by_query)


def _excluded(collection: Collection, task: Task) -> list[str]:
    queries = sum(bool(len(collection.excluded.of(query))) for query in task.queries)
    return [f"documents that are excluded for {queries:,} queries are left out of their rankings"] if queries else []


def _choosing(
    systems: Systems, parts: Parts, choices: dict[Expression, Choice], identical_ids: IdenticalIds
) -> dict[str | None, Parts]:
    """Return, by split, what ranks its own queries and pool to choose weights; it shares encoded documents."""
    by_split: dict[str, list[Expression]] = defaultdict(list)
    for part, choice in choices.items():
        if choice.split:
            by_split[choice.split].append(part)
    choosing: dict[str | None, Parts] = {
        name: Parts(systems, Task.of(systems.collection, name, identical_ids), parts.depth, wanted, choices)
        for name, wanted in by_split.items()
    }
    parts.beside = [*choosing.values()]
    for others in choosing.values():
        others.beside = [parts]
    return choosing
