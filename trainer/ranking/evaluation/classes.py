"""Classify a split's pairs: the accuracy of models."""

from __future__ import annotations

import numpy as np

from deepsiam.data_prep.collections.collection import SPLITS, Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.results_file import About, Classes, Results, results_of
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.ranker import CLASSES, ModelRanker, Ranker
from deepsiam.trainer.ranking.retrieval.system import List


def compare_classes(systems: Systems, split: str) -> Results:
    """Evaluate models on labelled pairs.

    Raises:
        InputError: the collection has no such split, or no classes, or a model does not predict these.
    """
    classes, pairs, labels = read_classes(systems.collection, split)
    rankers = {name: _classifier(ranker) for name, ranker in systems.single_rankers().items()}
    for ranker in rankers.values():
        predict(ranker, pairs[:1], classes)  # a model of other classes fails before all pairs are read
    hits = {name: predict(ranker, pairs, classes) == labels for name, ranker in rankers.items()}
    metrics = {name: Metrics({"accuracy": values.astype(np.float64)}) for name, values in hits.items()}
    shares = np.bincount(labels, minlength=len(classes)) / len(labels)
    about = About(
        collection=str(systems.collection.directory),
        split=split,
        queries=len({query for query, _ in pairs}),
        corpus=len({document for _, documents in pairs for document in documents}),
        classes=Classes(pairs=len(labels), shares=dict(zip(classes, shares.tolist(), strict=True))),
    )
    return results_of(metrics, systems.single_stages(), about)


def _classifier(ranker: Ranker) -> ModelRanker:
    """Return a ranker that predicts classes; raise InputError for another one."""
    if not isinstance(ranker, ModelRanker):
        raise InputError("BM25 does not predict classes: leave it out, or --classes")
    if not ranker.predicts_classes:
        raise InputError(
            f"{ranker.name}: a {ranker.method.name} with method.loss={ranker.method.loss} does not predict "
            f"classes: fine-tune one with method.loss={CLASSES}, or leave out --classes"
        )
    return ranker


def read_classes(collection: Collection, split: str) -> tuple[list[str], list[List], np.ndarray]:
    """Return the names of the classes, the split's pairs by query, and the pairs' classes, int64 [pairs].

    Raises:
        InputError: no such split, or its labels are not classes.
    """
    groups, classes = collection.groups(split), collection.classes
    labels = groups.labels.astype(np.int64)
    if not classes or not np.array_equal(labels, groups.labels) or not set(labels.tolist()) <= set(range(len(classes))):
        raise InputError(f"{collection.directory / SPLITS / split}: its labels are not classes: leave out --classes")
    every = (groups[i] for i in range(len(groups)))
    return classes, [(group.query, group.candidates.tolist()) for group in every], labels


def predict(ranker: ModelRanker, pairs: list[List], classes: list[str]) -> np.ndarray:
    """Return the class with the largest logit for each pair, int64 [pairs].

    Raises:
        InputError: the model has a different number of classes.
    """
    logits = np.concatenate(ranker.scores(pairs, "classify"))
    if logits.ndim != 2 or logits.shape[1] != len(classes):
        number = logits.shape[1] if logits.ndim == 2 else 1
        raise InputError(
            f"{ranker.name}: predicts {number} classes, {ranker.collection.directory} has {len(classes)}: "
            f"{', '.join(classes)}"
        )
    if ranker.loaded.classes:  # another's model may have the classes in another order
        model_classes, collection_classes = (
            [name.casefold() for name in names] for names in (ranker.loaded.classes, classes)
        )
        if sorted(model_classes) != sorted(collection_classes):
            raise InputError(
                f"{ranker.name}/config.json: id2label: predicts {', '.join(ranker.loaded.classes)}, "
                f"{ranker.collection.directory} has {', '.join(classes)}"
            )
        logits = logits[:, [model_classes.index(name) for name in collection_classes]]
    predicted: np.ndarray = logits.argmax(axis=1)
    return predicted
