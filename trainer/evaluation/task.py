"""Rank a split's queries over its pool of documents, by a model or by BM25, and measure the rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from models.batching.framing import Framing
from trainer.checkpoints.load import LoadedModel
from trainer.evaluation.metrics import DEPTH, Metrics, measure
from trainer.retrieval.search import Ranked
from trainer.retrieval.texts import Texts, embed_task, in_pool_order, index_task, matching_of

LONG = 1 << 16  # tokens, more than any model reads
TIE_RULE = "equal scores rank in an order drawn once for all systems"


@dataclass(frozen=True)
class Task(Texts):
    """The judged queries of a split, in the order of `qrels`, and the pool of documents that they are ranked over."""

    qrels: dict[str, dict[str, int]]

    @classmethod
    def of(cls, collection: Collection, split: str) -> Task:
        """Read a split's task.

        Raises:
            InputError: the collection has no such split, or its pool is empty.
        """
        qrels = collection.qrels(split)
        pool = in_pool_order(collection.pool(split)).tolist()
        if not pool:
            raise InputError(f"{collection.directory}: the pool of split {split} is empty: list documents or remove it")
        return cls(collection, collection.queries.ids.find([*qrels]).tolist(), pool, qrels)

    def name(self, position: int) -> str:
        """Return the id of a document of the pool."""
        return self.collection.corpus.ids[self.pool[position]]

    def measure(self, ranked: Sequence[Ranked], more: Sequence[str] = ()) -> Metrics:
        """Compute the metrics of rankings, one for each query; `more` names additional metrics."""
        names = self.collection.corpus.ids
        named = ([names[self.pool[i]] for i in of_query.documents.tolist()] for of_query in ranked)
        return measure(self.qrels, dict(zip(self.qrels, named, strict=True)), more)


def evaluate_run(trained: LoadedModel, collection: Collection, split: str) -> Metrics:
    """Rank a split with a fine-tuned model over the split's pool, and measure it; the errors are `embed_task`'s."""
    task = Task.of(collection, split)
    return task.measure(embed_task(trained, task).rank(DEPTH))


def evaluate_bm25(collection: Collection, split: str) -> Metrics:
    """Rank a split with BM25, over the same pool in the same order, and measure it."""
    task = Task.of(collection, split)
    return task.measure(index_task(task).rank(DEPTH))


def about_models(collection: Collection, split: str, models: Mapping[str, LoadedModel]) -> dict[str, Any]:
    """Describe as JSON values what is evaluated: the split, each model's checkpoint and how much of a text it reads."""
    methods = {name: matching_of(trained, collection)[1] for name, trained in models.items()}
    return {
        "collection": str(collection.directory),
        "split": split,
        "checkpoints": {name: str(trained.checkpoint) for name, trained in models.items()},
        "max_tokens": {
            name: {
                "query": _most_tokens(method.query_framing(collection.tokenizer)),
                "document": _most_tokens(method.document_framing(collection.tokenizer)),
                **({"kept_of_query": "end"} if method.kept_of_query == "end" else {}),
            }
            for name, method in methods.items()
        },
    }


def _most_tokens(framing: Framing) -> int:
    """Return the most tokens of a text that are read, over all its inputs, [CLS] and [SEP] included."""
    longest = np.full(LONG, framing.vocabulary.mask)
    return int(framing.arrays([longest])["ids"].size)
