"""Rank a split's queries over its pool of documents, by a model or by BM25, and measure the rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.tokenizers.check import require_same_tokenizer
from models.config import MatchingConfig
from models.matching.dual_encoder import DualEncoder
from trainer.checkpoints.load import TrainedModel
from trainer.data.rng import keyed_rng
from trainer.retrieval.bm25 import Bm25
from trainer.retrieval.encode import encode_texts
from trainer.retrieval.metrics import DEPTH, Metrics, measure
from trainer.retrieval.system import Embedded

TIE_RULE = "equal scores rank in an order drawn once for all systems"


@dataclass(frozen=True)
class Task:
    """The judged queries of a split, and the pool of documents that they are ranked over."""

    collection: Collection
    qrels: dict[str, dict[str, int]]
    queries: list[int]  # positions in collection.queries, in the order of qrels
    pool: list[int]  # positions in collection.corpus; equal scores rank in this order

    @classmethod
    def of(cls, collection: Collection, split: str) -> Task:
        """Read a split's task.

        The pool's order is random, the same for every system: in the order of the corpus, where the relevant
        documents may come first, ties would favour them.

        Raises:
            InputError: the collection has no such split, or its pool is empty.
        """
        qrels = collection.qrels(split)
        pool = np.sort(collection.pool(split)).tolist()
        if not pool:
            raise InputError(f"{collection.directory}: the pool of split {split} is empty: list documents or remove it")
        pool = [pool[i] for i in keyed_rng("pool order").permutation(len(pool))]
        return cls(collection, qrels, collection.queries.ids.find([*qrels]).tolist(), pool)

    def measure(self, ranked: Sequence[Sequence[int]]) -> Metrics:
        """Compute the metrics of rankings, one a query, given as positions in the pool."""
        names = self.collection.corpus.ids
        named = ([names[self.pool[i]] for i in documents] for documents in ranked)
        return measure(self.qrels, dict(zip(self.qrels, named, strict=True)))


def embed_task(trained: TrainedModel, task: Task) -> Embedded:
    """Encode a task's queries and its pool with a fine-tuned model.

    Raises:
        InputError: the model was not fine-tuned, or its tokenizer is not the collection's.
    """
    collection = task.collection
    model, method = matching_of(trained, collection)
    vocabulary = trained.tokenizer
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    queries = (collection.queries.tokens(i) for i in task.queries)
    documents = (collection.corpus.tokens(i) for i in task.pool)
    encoded_queries = encode_texts(
        model.embed_queries, method.query_framing(vocabulary), queries, what="encode queries", device=device
    )
    encoded_documents = encode_texts(
        model.embed_documents, method.document_framing(vocabulary), documents, what="encode documents", device=device
    )
    return Embedded(encoded_queries, encoded_documents)


def index_task(task: Task) -> Bm25:
    """Index a task's pool with BM25, for its queries."""
    queries, documents = task.collection.queries, task.collection.corpus
    return Bm25([queries.text(i) for i in task.queries], [documents.text(i) for i in task.pool])


def evaluate_run(trained: TrainedModel, collection: Collection, split: str) -> Metrics:
    """Rank a split with a fine-tuned model, by exact search over the split's pool, and measure it.

    Raises:
        InputError: the model was not fine-tuned, or its tokenizer is not the collection's.
    """
    task = Task.of(collection, split)
    return task.measure(embed_task(trained, task).rank(DEPTH))


def evaluate_bm25(collection: Collection, split: str) -> Metrics:
    """Rank a split with BM25, over the same pool in the same order, and measure it."""
    task = Task.of(collection, split)
    return task.measure(index_task(task).rank(DEPTH))


def matching_of(trained: TrainedModel, collection: Collection) -> tuple[DualEncoder, MatchingConfig]:
    """The model and its method's keys; raise InputError where it cannot rank this collection."""
    model, method = trained.model, trained.recipe.method
    if not isinstance(model, DualEncoder) or not isinstance(method, MatchingConfig):
        raise InputError(
            f"{trained.checkpoint}: a {trained.kind} pre-training run, which was not trained to compare texts: "
            f"fine-tune it first (deepspeed --module trainer.finetune RECIPE init_from={trained.recipe.run})"
        )
    require_same_tokenizer(
        trained.tokenizer,
        trained.checkpoint,
        collection.tokenizer.fingerprint,
        collection.directory,
        f"run python -m data_prep collection {collection.directory} --tokenizer {trained.tokenizer.path}",
    )
    return model, method
