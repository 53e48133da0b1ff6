"""The file of trainer.evaluate: the systems and their metrics, what they were measured on, how pairs of them differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from deepsiam.data_prep.common.files import whole_file
from deepsiam.data_prep.common.json_file import Count, Record, Sha256, read_json
from deepsiam.trainer.ranking.evaluation.metrics import CLASS_HEADINGS, HEADINGS, LIST_HEADINGS, Metric, Metrics
from deepsiam.trainer.ranking.evaluation.significance import SystemPair, every_pair


class Limits(Record):
    """How many tokens of a text a model reads."""

    query: Count
    document: Count
    kept_of_query: str | None = None  # "end": its last tokens, not the first


class SystemStage(Record):
    """A part of a system, after the parts that it is made of."""

    stage: str  # bm25, a path, `fuse`, or `> DEPTH` and what re-ranks
    seconds: float | None = None
    passes: float | None = None  # forward passes for a query, the mean; documents that are encoded ahead do not count
    depth: Count | None = None  # how many documents it re-ranks
    position_bias: float | None = None  # mean |p_ij + p_ji - 1|, if it compares documents in both orders
    model: str | None = None  # the path of the model that gives scores
    checkpoint: str | None = None
    checkpoint_sha256: Sha256 | None = None  # of its files (systems.contents_sha256)
    max_tokens: Limits | None = None
    precision: str | None = None  # what the model computed in
    files: dict[str, Sha256] | None = None  # run files and recipes that it reads, by path
    fused: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None  # expressions, if it fuses scores
    weight: float | None = None  # of the second one; None: reciprocal ranks
    split: str | None = None  # where the weight was chosen; None: given, or reciprocal ranks
    why: str | None = None  # why no weight was chosen


class SystemResult(Record):
    """How a system was made, and how good it is."""

    expression: str  # as `--system` takes it, with the names of other systems replaced by what they stand for
    metrics: dict[str, float]  # means over queries, lists or pairs
    stages: Annotated[list[SystemStage], Field(min_length=1)]

    @property
    def passes(self) -> float | None:
        """Forward passes for a query; None if those of a stage are not known, as of a run file."""
        passes = [stage.passes for stage in self.stages]
        return None if None in passes else sum(filter(None, passes))

    @property
    def combined(self) -> bool:
        """Whether it has several parts."""
        return len(self.stages) > 1

    @property
    def single_model(self) -> bool:
        """Whether it is one trained model: not BM25, not a run file."""
        return not self.combined and self.stages[0].checkpoint is not None


class Identical(Record):
    """Whether the document with the query's id was left out of rankings."""

    rule: str
    queries: Count  # how many it was left out for


class CandidateLists(Record):
    """The candidate lists of `--candidates`."""

    lists: Count
    left_out: Count  # without a relevant document
    fewest: Count  # candidates of a list
    most: Count


class Classes(Record):
    """The labelled pairs of `--classes`."""

    pairs: Count
    shares: Annotated[dict[str, float], Field(min_length=1)]  # of each class


class About(Record):
    """What the systems were measured on."""

    collection: str
    collection_sha256: Sha256 | None = None  # of its manifest
    precision: str | None = None  # that of --precision
    split: str
    queries: Count
    corpus: Count  # documents
    ignore_identical_ids: Identical | None = None
    metrics: list[str] = []  # those of `--metrics`
    candidates: CandidateLists | None = None
    classes: Classes | None = None
    remarks: list[str] = []  # on run files

    @property
    def columns(self) -> dict[str, str]:
        """The titles of the table's columns by metric; the first metric or, of candidate lists, MRR is tested."""
        if self.classes:
            return CLASS_HEADINGS
        if self.candidates:
            one_size = self.candidates.fewest == self.candidates.most
            recalls = {name: title for name, title in LIST_HEADINGS.items() if name.startswith("r@")}
            among = f"/{self.candidates.most}" if one_size else ""
            return {**LIST_HEADINGS, **{name: title + among for name, title in recalls.items()}}
        return HEADINGS | {name: Metric.of(name).title for name in self.metrics}

    @property
    def tested(self) -> str:
        """The metric of the p-values."""
        return "mrr" if self.candidates else next(iter(self.columns))


class Results(Record):
    """The whole file."""

    version: Literal[1]  # changes when a key's meaning does
    systems: Annotated[dict[str, SystemResult], Field(min_length=1)]
    about: About
    pairs: list[SystemPair]  # each system and each later one
    values: dict[str, dict[str, list[float]]] | None = None  # of many collections: of each query, by system and metric

    @model_validator(mode="after")
    def _whole(self) -> Results:
        for name, system in self.systems.items():
            if columns := self.about.columns.keys() - system.metrics.keys():
                raise ValueError(f"systems.{name} has no {min(columns)}")
        for pair in self.pairs:
            if not {*pair.systems} <= self.systems.keys():
                raise ValueError(f"no systems are named {' and '.join(pair.systems)}")
            if pair.metric != self.about.tested:
                raise ValueError(f"pairs differ by {pair.metric!r}, not by {self.about.tested}")
        if self.values is not None:
            queries = self.about.queries
            for name, metric in product(self.systems, self.about.columns):
                if len(self.values.get(name, {}).get(metric, [])) != queries:
                    raise ValueError(f"values.{name}.{metric} is not {queries:,} numbers, one for each query")
        return self


def results_of(
    measures: Mapping[str, Metrics],
    parts: Mapping[str, tuple[str, Sequence[SystemStage]]],
    about: About,
    by_query: bool = False,
) -> Results:
    """Put results together; `parts` has the expression and the stages of each system that was measured."""
    systems = {
        name: SystemResult(expression=parts[name][0], metrics=metrics.means, stages=list(parts[name][1]))
        for name, metrics in measures.items()
    }
    pairs = every_pair(measures, [*systems], about.tested)
    values = {name: {key: row.tolist() for key, row in metrics.values.items()} for name, metrics in measures.items()}
    return Results(version=1, systems=systems, about=about, pairs=pairs, values=values if by_query else None)


def write_results(path: Path, results: Results) -> None:
    """Write the file; keys without a value are left out."""
    with whole_file(path) as file:
        file.write((json.dumps(results.model_dump(mode="json", exclude_none=True), indent=1) + "\n").encode())


def read_results(path: Path) -> Results:
    """Read the file; raise InputError where it is not results of this version."""
    return read_json(path, Results, "not results of this trainer.evaluate: run it again")
