"""A pipeline: a system finds documents for each query, and each model after it re-ranks the first of them.

A stage ranks by its model's scores. An interpolated stage, written +MODEL, fuses them with the scores from the stage
before it, as `fusion` does, over the documents that it re-ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trainer.ranking.evaluation import fusion
from trainer.ranking.evaluation.metrics import Metrics
from trainer.ranking.evaluation.rerank import again, scores_again
from trainer.ranking.evaluation.task import Task
from trainer.ranking.ranker import Ranker
from trainer.ranking.retrieval.search import Ranked

PLUS = "+"  # before the model of an interpolated stage

ALONE = 1.0
Weights = list[float | None]  # of each stage's model: ALONE where nothing is interpolated, None for reciprocal ranks


class Stage(NamedTuple):
    """A stage that re-ranks."""

    documents: int  # how many of the first documents of the stage before it re-ranks
    model: str
    interpolated: bool

    def __str__(self) -> str:
        """Format as on the command line, without the number of documents."""
        return PLUS * self.interpolated + self.model


class Pipeline(NamedTuple):
    """The system that searches, and the stages that re-rank."""

    first: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        """Format as on the command line."""
        return ",".join(self.names)

    @property
    def names(self) -> list[str]:
        """Each stage as on the command line, with the number of documents that it passes on."""
        names, passed_on = [self.first, *map(str, self.stages)], [f":{stage.documents}" for stage in self.stages]
        return [name + number for name, number in zip(names, [*passed_on, ""], strict=True)]

    @property
    def models(self) -> list[str]:
        """The models that re-rank."""
        return [stage.model for stage in self.stages]

    @property
    def interpolated(self) -> bool:
        """Whether any stage is interpolated."""
        return any(stage.interpolated for stage in self.stages)


def run(
    pipeline: Pipeline, task: Task, found: Sequence[Ranked], models: Mapping[str, Ranker], weights: Weights
) -> tuple[list[Ranked], list[float]]:
    """Re-rank what the first stage found by each later stage; return the last ranking, and each later stage's seconds.

    Documents that a stage does not re-rank keep their order, after those that it re-ranks.
    """
    ranked, seconds = list(found), []
    for stage, weight in zip(pipeline.stages, weights, strict=True):
        began = time.monotonic()
        scores = scores_again(models[stage.model], task, ranked, stage.documents)
        ranked = _reordered(ranked, scores, weight)
        seconds.append(time.monotonic() - began)
    return ranked, seconds


def choose_weights(
    pipeline: Pipeline,
    task: Task,
    found: Sequence[Ranked],
    models: Mapping[str, Ranker],
    measure: Callable[[Sequence[Ranked]], Metrics],
) -> Weights:
    """Choose the weights of the interpolated stages, one after the other, by `fusion.best_weight`."""
    ranked, weights = list(found), Weights()
    for stage in pipeline.stages:
        scores = scores_again(models[stage.model], task, ranked, stage.documents)
        weight = ALONE
        if stage.interpolated:
            weight = fusion.best_weight([measure(_reordered(ranked, scores, tried)) for tried in fusion.WEIGHTS])
        weights.append(weight)
        ranked = _reordered(ranked, scores, weight)
    return weights


def _reordered(ranked: Sequence[Ranked], scores: Sequence[np.ndarray], weight: float | None) -> list[Ranked]:
    """Order the first documents of each ranking by their old and new scores, the new ones weighted by `weight`."""
    pairs = zip(ranked, scores, strict=True)
    return [again(one, fusion.fuse(one.scores[None, : len(new)], new[None], weight)[0]) for one, new in pairs]
