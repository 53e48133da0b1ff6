"""Score lists of documents that are given for a query, by a fine-tuned model of any kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.common.progress import track
from models.interface import PairScorer
from trainer.ranking.retrieval.pairs import List, pair_scores
from trainer.ranking.retrieval.texts import Texts, encode_task
from trainer.training.checkpoints.load import LoadedModel


def list_scores(
    trained: LoadedModel, collection: Collection, lists: Sequence[List], what: str = "score"
) -> list[np.ndarray]:
    """Score each list's documents for its query, fp32 [n]; every text is encoded once.

    Args:
        trained: any matching model.
        collection: contains the texts.
        lists: at least one, with at least one document each.
        what: names the work in the progress line.

    Raises:
        InputError: the model was not fine-tuned, its tokenizer is not the collection's, or its scores or vectors are
            not finite.
    """
    if isinstance(trained.model, PairScorer):
        return pair_scores(trained, collection, lists, what)
    queries = np.unique([query for query, _ in lists])
    pool = np.unique(np.concatenate([documents for _, documents in lists]))
    system = encode_task(trained, Texts(collection, queries.tolist(), pool.tolist()))
    return [
        system.of(int(queries.searchsorted(query)), pool.searchsorted(documents))
        for query, documents in track(lists, what, "lists")
    ]
