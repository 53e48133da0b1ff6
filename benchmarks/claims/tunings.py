"""The collections of the claims benchmark: an encoder's data to fine-tune on, to choose its rate on, and to rank.

Docstrings have a training, a development and a test split, of different packages. In Cranfield and Vaswani, each fold's
queries are ranked after training on the other fold: some of the other fold's queries are trained on, the rest choose
the learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claims.cut_bm25 import evaluate_cut_bm25
from benchmarks.claims.material import CLASSIC, FOLDS
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe

RECIPE = "recipes/demo_siamese.yaml"
RATES = (3e-4, 1e-3, 3e-3)  # learning rates to try with every start
DOCSTRINGS = "docstrings"
COLLECTIONS = (DOCSTRINGS, *CLASSIC)
FEW = {DOCSTRINGS: (1500, 120)}  # by name, fine-tunings on docstrings: how many labelled pairs, None for all; steps
TEXTS = ("whole text", "cut text")  # what BM25 reads

Values = dict[str, list[float]]  # MRR@10 of every query, by split or collection


@dataclass(frozen=True)
class Tuning:
    """A fine-tuning: its data and settings, the splits to choose its rate on, and by a table's name those to rank."""

    name: str
    collection: Collection
    settings: Mapping[str, Any]
    dev: tuple[str, ...]
    ranked: Mapping[str, str]


def tunings(
    docstrings: Collection, classic: Collection, of_docstrings: Mapping[str, tuple[int | None, int]] = FEW
) -> list[Tuning]:
    """Return all fine-tunings of an encoder."""
    found = []
    for name, (pairs, steps) in of_docstrings.items():
        settings = {"data.pairs": pairs or "null", "steps": steps}
        found.append(Tuning(name, docstrings, settings, ("dev",), {name: "test"}))
    for fold, other in zip(FOLDS, reversed(FOLDS), strict=True):
        settings = {"data.pairs": "null", "data.split": other, "steps": 60, "optimizer.warmup_steps": 6}
        dev = tuple(f"{name}-{other}-dev" for name in CLASSIC)
        ranked = {name: f"{name}-{fold}" for name in CLASSIC}
        found.append(Tuning(f"classic, {other} fold", classic, settings, dev, ranked))
    return found


def rank(run: Path, collection: Collection, splits: Iterable[str]) -> Values:
    """Return MRR@10 of every query of some splits, ranked by a fine-tuned run or a published folder."""
    trained = load_any(run)
    return {split: mrr(evaluate_split(ranker_of(trained, collection), split)) for split in splits}


def by_table(ranked: Iterable[tuple[Tuning, Values]]) -> Values:
    """Join the values of each fine-tuning's ranked splits by table: both folds belong to one collection."""
    joined: Values = {}
    for tuning, values in ranked:
        for name, split in tuning.ranked.items():
            joined.setdefault(name, []).extend(values[split])
    return joined


def bm25(tunings: Sequence[Tuning]) -> dict[str, Values]:
    """Return BM25's MRR@10 of every query, by what BM25 reads and by table."""
    method = load_recipe(FinetuneRecipe, Path(RECIPE)).method
    limits = {"max_query_tokens": method.max_query_tokens, "max_document_tokens": method.max_document_tokens}
    collections = {split: tuning.collection for tuning in tunings for split in tuning.ranked.values()}
    whole = {split: mrr(evaluate_split(Bm25Ranker(texts), split)) for split, texts in collections.items()}
    cut = {split: mrr(evaluate_cut_bm25(texts, split, **limits)) for split, texts in collections.items()}
    values = zip(TEXTS, (whole, cut), strict=True)
    return {text: by_table((tuning, of_text) for tuning in tunings) for text, of_text in values}


def mean(values: Mapping[str, Sequence[float]]) -> float:
    """Return the mean over all queries of all splits."""
    return float(np.mean([value for split in values.values() for value in split]))


def mrr(metrics: Metrics) -> list[float]:
    """Return MRR@10 of every query."""
    return [float(value) for value in metrics.values["mrr@10"]]
