"""A pipeline: a system finds documents for each query, and each model after it ranks the first of them again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainer.checkpoints.load import LoadedModel
from trainer.evaluation.task import Task
from trainer.retrieval.rerank import Rerank, rerank_task
from trainer.retrieval.search import Ranked


class Pipeline(NamedTuple):
    """The stages of a pipeline: what each one but the last passes on, and the model that ranks last."""

    passed_on: tuple[Rerank, ...]  # a system and how many of its first documents the next stage ranks again
    last: str

    def __str__(self) -> str:
        """As the command line has it."""
        return ",".join([*map(str, self.passed_on), self.last])

    @property
    def first(self) -> Rerank:
        """The stage that searches."""
        return self.passed_on[0]

    @property
    def later(self) -> list[str]:
        """The models of the other stages."""
        return [*(stage.system for stage in self.passed_on[1:]), self.last]


def run(
    pipeline: Pipeline, task: Task, found: Sequence[Ranked], models: Mapping[str, LoadedModel]
) -> tuple[list[Ranked], list[float]]:
    """Rank what the first stage found by each later stage; return the last ranking, and the seconds of each of these.

    Documents that a stage does not rank again keep their order, after those that it does.
    """
    ranked, seconds = list(found), []
    for stage, name in zip(pipeline.passed_on, pipeline.later, strict=True):
        began = time.monotonic()
        ranked = rerank_task(models[name], task, ranked, stage.documents)
        seconds.append(time.monotonic() - began)
    return ranked, seconds
