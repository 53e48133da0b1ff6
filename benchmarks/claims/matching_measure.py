"""Measure a matching model, or an untrained baseline, on a split: the values of every query, list or pair."""

from __future__ import annotations

import numpy as np

from benchmarks.claims.matching_collections import Kind
from data_prep.collections.collection import Collection
from trainer.ranking.evaluation.candidate_lists import CandidateTask
from trainer.ranking.evaluation.classes import predict, read_classes
from trainer.ranking.evaluation.metrics import DEPTH, Metrics
from trainer.ranking.evaluation.task import Task
from trainer.ranking.retrieval.rerank import Rerank, rerank_task
from trainer.ranking.retrieval.texts import embed_task, index_task, searches
from trainer.training.checkpoints.load import LoadedModel


def measure(kind: Kind, trained: LoadedModel, collection: Collection, split: str) -> Metrics:
    """Measure a model; a model that cannot search re-ranks BM25's first documents."""
    if kind == "lists":
        lists = CandidateTask.of(collection, split)
        return lists.measure(lists.model_scores(trained))
    if kind == "classes":
        classes, pairs, labels = read_classes(collection, split)
        return _accuracy(predict(trained, collection, pairs, classes) == labels)
    task = Task.of(collection, split)
    if searches(trained, collection):
        return task.measure(task.rank(embed_task(trained, task), DEPTH))
    depth = Rerank().documents
    return task.measure(rerank_task(trained, task, task.rank(index_task(task), max(depth, DEPTH)), depth))


def baseline(kind: Kind, collection: Collection, split: str) -> Metrics:
    """Measure BM25, or always predicting the most frequent class of the training split."""
    if kind == "lists":
        lists = CandidateTask.of(collection, split)
        return lists.measure(lists.bm25_scores())
    if kind == "classes":
        _, _, known = read_classes(collection, "train")
        _, _, labels = read_classes(collection, split)
        return _accuracy(labels == np.bincount(known).argmax())
    task = Task.of(collection, split)
    return task.measure(task.rank(index_task(task), DEPTH))


def _accuracy(right: np.ndarray) -> Metrics:
    return Metrics({"accuracy": right.astype(np.float64)})
