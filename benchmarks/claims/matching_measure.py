"""Measure a matching model, or an untrained baseline, on a split: the values of every query, list or pair."""

from __future__ import annotations

import numpy as np

from benchmarks.claims.matching_collections import Kind
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.evaluation.candidate_lists import CandidateTask
from deepsiam.trainer.ranking.evaluation.classes import predict, read_classes
from deepsiam.trainer.ranking.evaluation.compare import Parts
from deepsiam.trainer.ranking.evaluation.expression import BM25, Leaf, Rerank
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metrics
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of

RERANKED = 100  # of BM25's documents, by a model that cannot search


def measure(kind: Kind, trained: LoadedModel, collection: Collection, split: str) -> Metrics:
    """Measure a model; a model that cannot search re-ranks BM25's first documents."""
    ranker = ranker_of(trained, collection)
    if kind == "lists":
        return CandidateTask.of(collection, split).measured(ranker)
    if kind == "classes":
        classes, pairs, labels = read_classes(collection, split)
        return _accuracy(predict(ranker, pairs, classes) == labels)
    task = Task.of(collection, split)
    if ranker.searches:
        return task.measure(task.rank(ranker.system(task), DEPTH))
    system = Rerank(BM25, RERANKED, Leaf(str(trained.checkpoint)))
    systems = Systems(collection, [], {BM25: Bm25Ranker(collection), system.second: ranker})
    return task.measure(Parts(systems, task, DEPTH, [system], {}).rank(system, DEPTH))


def baseline(kind: Kind, collection: Collection, split: str) -> Metrics:
    """Measure BM25, or always predicting the most frequent class of the training split."""
    if kind == "lists":
        return CandidateTask.of(collection, split).measured(Bm25Ranker(collection))
    if kind == "classes":
        _, _, known = read_classes(collection, "train")
        _, _, labels = read_classes(collection, split)
        return _accuracy(labels == np.bincount(known).argmax())
    task = Task.of(collection, split)
    return task.measure(task.rank(Bm25Ranker(collection).system(task), DEPTH))


def _accuracy(right: np.ndarray) -> Metrics:
    return Metrics({"accuracy": right.astype(np.float64)})
