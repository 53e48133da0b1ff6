"""A pipeline: a system finds documents for each query, and each model after it ranks the first of them again.

A stage ranks by its model's scores; an interpolated one, written +MODEL, by these and the scores that the documents
came with, fused as `fusion` does, over the documents that it ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trainer.checkpoints.load import LoadedModel
from trainer.evaluation import fusion
from trainer.evaluation.metrics import Metrics
from trainer.evaluation.task import Task
from trainer.retrieval.rerank import again, scores_again
from trainer.retrieval.search import Ranked

PLUS = "+"  # before the model of an interpolated stage

ALONE = 1.0
Weights = list[float | None]  # of each stage's model: ALONE where nothing is interpolated, None for reciprocal ranks


class Stage(NamedTuple):
    """A stage that ranks again."""

    documents: int  # how many of the first ones of the stage before
    model: str
    interpolated: bool

    def __str__(self) -> str:
        """As the command line has it, without the number of documents."""
        return PLUS * self.interpolated + self.model


class Pipeline(NamedTuple):
    """What searches, and the stages that rank again."""

    first: str
    stages: tuple[Stage, ...]

    def __str__(self) -> str:
        """As the command line has it."""
        return ",".join(self.names)

    @property
    def names(self) -> list[str]:
        """Each stage as the command line has it, with how many documents it passes on."""
        names, passed_on = [self.first, *map(str, self.stages)], [f":{stage.documents}" for stage in self.stages]
        return [name + number for name, number in zip(names, [*passed_on, ""], strict=True)]

    @property
    def models(self) -> list[str]:
        """The models that rank again."""
        return [stage.model for stage in self.stages]

    @property
    def interpolated(self) -> bool:
        """Whether any stage is."""
        return any(stage.interpolated for stage in self.stages)


def run(
    pipeline: Pipeline, task: Task, found: Sequence[Ranked], models: Mapping[str, LoadedModel], weights: Weights
) -> tuple[list[Ranked], list[float]]:
    """Rank what the first stage found by each later stage; return the last ranking, and the seconds of each of these.

    Documents that a stage does not rank again keep their order, after those that it does.
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
    models: Mapping[str, LoadedModel],
    measure: Callable[[Sequence[Ranked]], Metrics],
) -> Weights:
    """Choose the weight of each interpolated stage, one after the other, by `fusion.best_weight`."""
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
    """Order the first documents of each ranking by both scores of them, the new ones weighted by `weight`."""
    pairs = zip(ranked, scores, strict=True)
    return [again(one, fusion.fuse(one.scores[None, : len(new)], new[None], weight)[0]) for one, new in pairs]
