"""Classify a split's pairs: the accuracy of models, and of always predicting the majority class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data_prep.collections.collection import SPLITS, Collection
from data_prep.common.errors import InputError
from trainer.ranking.evaluation.metrics import Metrics, p_value
from trainer.ranking.evaluation.task import about_models
from trainer.ranking.ranker import CLASSES, ModelRanker
from trainer.ranking.retrieval.system import List


def compare_classes(collection: Collection, split: str, models: Mapping[str, ModelRanker]) -> dict[str, Any]:
    """Evaluate every model on labelled pairs: its accuracy, the p-value, what was classified, as JSON values.

    The row `majority` always predicts the split's most frequent class (of equally frequent classes, the first).

    Raises:
        InputError: the collection has no such split, or no classes, or a model does not predict these.
    """
    classes, pairs, labels = read_classes(collection, split)
    for ranker in models.values():
        if not ranker.predicts_classes:
            raise InputError(
                f"{ranker.name}: a {ranker.method.name} with method.loss={ranker.method.loss} does not predict "
                f"classes: fine-tune one with method.loss={CLASSES}, or leave out --classes"
            )
        predict(ranker, pairs[:1], classes)  # a model of other classes fails before all pairs are read
    metrics = {}
    for name, ranker in models.items():
        right = predict(ranker, pairs, classes) == labels
        metrics[name] = Metrics({"accuracy": right.astype(np.float64)})
    shares = np.bincount(labels, minlength=len(classes)) / len(labels)
    return {
        "majority": {"accuracy": float(shares.max())},
        **{name: measured.means for name, measured in metrics.items()},
        "p_value": p_value(metrics, list(models), "accuracy"),
        "majority_class": classes[int(shares.argmax())],
        "classes": {name: float(share) for name, share in zip(classes, shares, strict=True)},
        "pairs": len(labels),
        **about_models(collection, split, models),
    }


def read_classes(collection: Collection, split: str) -> tuple[list[str], list[List], np.ndarray]:
    """Return the names of the classes, the split's pairs by query, and the pairs' classes, int64 [pairs].

    Raises:
        InputError: no such split, or its labels are not classes.
    """
    groups, classes = collection.groups(split), collection.classes
    labels = np.asarray(groups.labels).astype(np.int64)
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
        theirs, ours = ([name.casefold() for name in names] for names in (ranker.loaded.classes, classes))
        if sorted(theirs) != sorted(ours):
            raise InputError(
                f"{ranker.name}/config.json: id2label: predicts {', '.join(ranker.loaded.classes)}, "
                f"{ranker.collection.directory} has {', '.join(classes)}"
            )
        logits = logits[:, [theirs.index(name) for name in ours]]
    predicted: np.ndarray = logits.argmax(axis=1)
    return predicted
