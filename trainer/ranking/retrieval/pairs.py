"""Score pairs by a model that reads a query and a document together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from data_prep.common.progress import meter
from models.batching.framing import PairFraming
from models.interface import Corpus, PairScorer, Vocabulary
from trainer.ranking.retrieval.encode import BATCH_TOKENS, length_batches
from trainer.ranking.retrieval.shared import computed
from trainer.ranking.retrieval.texts import matching_of, on_device
from trainer.training.checkpoints.load import LoadedModel

List = tuple[int, Sequence[int]]  # the number of a query, the numbers of documents


@runtime_checkable
class PairConfig(Protocol):
    """The keys of a `PairScorer`."""

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        """Return how a query and a document become the arguments of `score_pairs`."""


def pair_scores(
    trained: LoadedModel, collection: Collection, lists: Sequence[List], what: str = "score"
) -> list[np.ndarray]:
    """Score each list's documents for its query, with a fine-tuned model that reads pairs; see `score_lists`.

    Raises:
        InputError: the model was not fine-tuned to read pairs, its tokenizer is not the collection's, or a score is not
            finite.
    """
    model, method = matching_of(trained, collection)
    if not (isinstance(model, PairScorer) and isinstance(method, PairConfig)):
        raise InputError(f"{trained.checkpoint}: a {trained.kind} does not read a query and a document together")
    return score_lists(
        model.score_pairs,
        method.pair_framing(trained.tokenizer),
        collection.queries,
        collection.corpus,
        lists,
        what=what,
        device=on_device(trained.model),
    )


def score_lists(
    score_pairs: Callable[..., Tensor],
    framing: PairFraming,
    queries: Corpus,
    documents: Corpus,
    lists: Sequence[List],
    *,
    what: str = "score",
    batch_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> list[np.ndarray]:
    """Score each list's documents for its query: fp32 [n], or logits of classes [n, C], in the order given.

    Pairs that are equal after truncation are scored once, so that they tie.

    Args:
        score_pairs: the method of a model on `device`, in eval mode.
        framing: makes the arguments of `score_pairs`.
        queries: the texts of the queries.
        documents: the texts of the documents.
        lists: at least one, with at least one document each.
        what: names the work in the progress line.
        batch_tokens: the most tokens of a batch, padding included, unless one pair is longer; by default
            BATCH_TOKENS of the device.
        device: where the model is.

    Raises:
        InputError: a score is not finite.
    """
    pairs, lengths, number_of_pair = _distinct(framing, queries, documents, lists)
    order: list[int] = []
    parts = []
    batch_tokens = batch_tokens or BATCH_TOKENS[torch.device(device).type]

    def scored(batch: list[int]) -> np.ndarray:
        texts = [queries.tokens(pairs[i][0]) for i in batch], [documents.tokens(pairs[i][1]) for i in batch]
        arrays = {name: torch.from_numpy(array).to(device) for name, array in framing.arrays(*texts).items()}
        with torch.inference_mode():
            scores: np.ndarray = score_pairs(**arrays).float().cpu().numpy()
        return scores

    with meter(what, "pairs", len(pairs)) as report:
        for batch, of_batch in computed(length_batches(lengths, batch_tokens), scored):
            parts.append(of_batch)
            order += batch
            report(len(order), "")
    scores = np.concatenate(parts)
    if not np.isfinite(scores).all():
        raise InputError(f"{what}: the model's scores are not finite: take an earlier checkpoint")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ends = np.cumsum([len(candidates) for _, candidates in lists])
    return np.split(scores[place[number_of_pair]], ends[:-1])


def _distinct(
    framing: PairFraming, queries: Corpus, documents: Corpus, lists: Sequence[List]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Return the distinct pairs after truncation, their lengths, and each listed pair's number among them."""
    pairs: list[tuple[int, int]] = []
    lengths: list[int] = []
    number_of_pair = []
    numbers: dict[bytes, int] = {}
    for query, candidates in lists:
        of_query = queries.tokens(query)
        for document in candidates:
            cut = framing.cut(of_query, documents.tokens(document))
            number = numbers.setdefault(_key(*cut), len(pairs))
            if number == len(pairs):
                pairs.append((query, document))
                lengths.append(sum(map(len, cut)) + framing.frame)
            number_of_pair.append(number)
    return pairs, lengths, number_of_pair


def _key(query: np.ndarray, document: np.ndarray) -> bytes:
    """Return 16 bytes that are equal for equal texts: the texts of all pairs would not fit into memory."""
    ids = np.concatenate([[len(query)], query, document]).astype(np.uint32)
    return hashlib.blake2b(ids.tobytes(), digest_size=16).digest()
