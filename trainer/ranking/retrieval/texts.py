"""The texts of a collection that a model encodes or BM25 indexes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from data_prep.collections.collection import Collection, remedy
from data_prep.common.errors import InputError
from data_prep.tokenizers.check import require_same_tokenizer
from models.config import MatchingConfig
from models.interface import PairScorer
from models.matching.dual_encoder import DualEncoder
from trainer.ranking.retrieval.bm25 import Bm25
from trainer.ranking.retrieval.encode import encode_texts, encode_vectors
from trainer.ranking.retrieval.system import Embedded, Scored, ScoredTogether
from trainer.training.checkpoints.load import LoadedModel
from trainer.training.data.rng import keyed_rng

CLASSES = "classes"  # the loss of models that classify pairs


@dataclass(frozen=True)
class Texts:
    """The queries and documents of a collection that a system encodes or indexes."""

    collection: Collection
    queries: list[int]  # positions in collection.queries
    pool: list[int]  # positions in collection.corpus; ties rank in this order


def in_pool_order(documents: np.ndarray) -> np.ndarray:
    """Put documents, int64 [N], into a random order, the same for every system.

    In the order of the corpus, where the relevant documents may come first, ties would favour them.
    """
    return np.sort(documents)[keyed_rng("pool order").permutation(len(documents))]


def searches(trained: LoadedModel, collection: Collection) -> bool:
    """Return whether a model can score all documents of a pool, each by itself; errors are as in `matching_of`."""
    model, _ = matching_of(trained, collection)
    return isinstance(model, DualEncoder) and model.index != "list"


def embed_task(trained: LoadedModel, task: Texts) -> Embedded | Scored:
    """Encode a task's queries and its pool with a fine-tuned model that searches.

    Raises:
        InputError: the model was not fine-tuned, or cannot search, or its tokenizer is not the collection's.
    """
    if not searches(trained, task.collection):
        raise InputError(f"{trained.checkpoint}: a {trained.kind} cannot search: it re-ranks what another system found")
    system = encode_task(trained, task)
    assert isinstance(system, Embedded | Scored)
    return system


def encode_task(trained: LoadedModel, task: Texts) -> Embedded | Scored | ScoredTogether:
    """Encode a task's queries and its pool with a fine-tuned model that encodes them separately."""
    collection = task.collection
    model, method = matching_of(trained, collection)
    assert isinstance(model, DualEncoder)
    vocabulary, device = trained.tokenizer, on_device(model)
    queries, documents = map(collection.queries.tokens, task.queries), map(collection.corpus.tokens, task.pool)
    sides = {
        "queries": (model.embed_queries, method.query_framing(vocabulary), queries),
        "documents": (model.embed_documents, method.document_framing(vocabulary), documents),
    }
    if model.index == "dense":
        return Embedded(*(encode_texts(*side, what=f"encode {name}", device=device) for name, side in sides.items()))
    encoded = [encode_vectors(*side, what=f"encode {name}", device=device) for name, side in sides.items()]
    return (ScoredTogether if model.index == "list" else Scored)(model.score, encoded[0], encoded[1], device)


def query_vectors(trained: LoadedModel, collection: Collection, tokens: Iterable[np.ndarray]) -> np.ndarray:
    """Encode queries, given as token ids, with a model of one vector per text: fp32 [Q, H].

    Raises:
        InputError: as `matching_of`, or an embedding is not finite.
    """
    model, method = matching_of(trained, collection)
    assert isinstance(model, DualEncoder)
    framing = method.query_framing(trained.tokenizer)
    return encode_texts(model.embed_queries, framing, tokens, what="encode queries", device=on_device(model))


def index_task(task: Texts) -> Bm25:
    """Index a task's pool with BM25, for its queries."""
    queries, documents = task.collection.queries, task.collection.corpus
    return Bm25([queries.text(i) for i in task.queries], [documents.text(i) for i in task.pool])


def on_device(model: torch.nn.Module) -> torch.device:
    """Move a model to the GPU, or leave it on the CPU where there is none; return where it is."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    return device


def matching_of(trained: LoadedModel, collection: Collection) -> tuple[DualEncoder | PairScorer, MatchingConfig]:
    """Return the model and its method's keys; raise InputError where it cannot rank this collection."""
    model, method = trained.model, trained.method
    if not isinstance(model, DualEncoder | PairScorer) or not isinstance(method, MatchingConfig):
        raise InputError(
            f"{trained.checkpoint}: a {trained.kind} pre-training run, which was not trained to compare texts: "
            f"fine-tune it first (deepspeed --module trainer.finetune RECIPE init_from={trained.checkpoint})"
        )
    require_same_tokenizer(
        trained.tokenizer,
        trained.checkpoint,
        collection.tokenizer.fingerprint,
        collection.directory,
        remedy(collection.directory, trained.tokenizer.path),
    )
    return model, method


def require_scores(trained: LoadedModel, method: MatchingConfig) -> None:
    """Raise InputError for a model that predicts classes and has no score to rank by."""
    if method.loss == CLASSES:
        raise InputError(
            f"{trained.checkpoint}: predicts classes and gives no score to rank by: evaluate with --classes"
        )
