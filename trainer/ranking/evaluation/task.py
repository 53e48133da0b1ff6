"""Rank a split's queries over its pool of documents, by a model or by BM25, and measure the rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.collections.relevant import IdenticalIds, left_out
from data_prep.common.errors import InputError
from models.batching.framing import Framing
from trainer.ranking.evaluation.metrics import DEPTH, Metrics, measure
from trainer.ranking.retrieval.search import Ranked
from trainer.ranking.retrieval.texts import Texts, embed_task, in_pool_order, index_task, matching_of
from trainer.training.checkpoints.load import LoadedModel

LONG = 1 << 16  # tokens, more than any model reads
TIE_RULE = "equal scores rank in an order drawn once for all systems"


class Ranks(Protocol):
    """A system, or a run file."""

    def rank(self, k: int) -> list[Ranked]:
        """Return at most k documents for each query, best first."""


@dataclass(frozen=True)
class Task(Texts):
    """The judged queries of a split, in the order of `qrels`, and the pool of documents that they are ranked over."""

    qrels: dict[str, dict[str, int]]
    left_out: dict[int, int] = field(default_factory=dict)  # positions in `pool`, by the query's position in `queries`

    @classmethod
    def of(cls, collection: Collection, split: str, identical_ids: IdenticalIds = "auto") -> Task:
        """Read a split's task; `identical_ids` is as in `data_prep.collections.relevant.left_out`.

        Raises:
            InputError: the collection has no such split, or its pool is empty.
        """
        qrels = collection.qrels(split)
        pool = in_pool_order(collection.pool(split)).tolist()
        if not pool:
            raise InputError(f"{collection.directory}: the pool of split {split} is empty: list documents or remove it")
        queries: list[int] = collection.queries.ids.find([*qrels]).tolist()
        document_of = left_out(collection, split, identical_ids)
        position = {document: place for place, document in enumerate(pool)} if document_of else {}
        places = {row: position.get(document_of.get(query, -1)) for row, query in enumerate(queries)}
        return cls(collection, queries, pool, qrels, {row: at for row, at in places.items() if at is not None})

    def name(self, position: int) -> str:
        """Return the id of a document of the pool."""
        return self.collection.corpus.ids[self.pool[position]]

    def rank(self, system: Ranks, k: int) -> list[Ranked]:
        """Return at most k documents for each query, best first, without those that are left out."""
        ranked = system.rank(k + bool(self.left_out))
        for row, position in self.left_out.items():
            kept = ranked[row].documents != position
            ranked[row] = Ranked(ranked[row].documents[kept], ranked[row].scores[kept])
        return [Ranked(documents[:k], scores[:k]) for documents, scores in ranked]

    def measure(self, ranked: Sequence[Ranked], more: Sequence[str] = ()) -> Metrics:
        """Compute the metrics of rankings, one for each query; `more` names additional metrics."""
        names = self.collection.corpus.ids
        named = ([names[self.pool[i]] for i in of_query.documents.tolist()] for of_query in ranked)
        return measure(self.qrels, dict(zip(self.qrels, named, strict=True)), more)


def evaluate_run(trained: LoadedModel, collection: Collection, split: str) -> Metrics:
    """Rank a split with a fine-tuned model over the split's pool, and measure it; the errors are `embed_task`'s."""
    task = Task.of(collection, split)
    return task.measure(task.rank(embed_task(trained, task), DEPTH))


def evaluate_bm25(collection: Collection, split: str) -> Metrics:
    """Rank a split with BM25, over the same pool in the same order, and measure it."""
    task = Task.of(collection, split)
    return task.measure(task.rank(index_task(task), DEPTH))


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
