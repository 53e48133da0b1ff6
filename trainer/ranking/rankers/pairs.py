"""Score pairs by a model that reads a query and a document together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from data_prep.common.errors import InputError
from data_prep.common.progress import meter
from models.arrays import on_device
from models.batching.framing import PairFraming
from models.interface import Corpus
from models.matching.pair_model import PairModelConfig
from trainer.ranking.ranker import ModelRanker
from trainer.ranking.retrieval.encode import BATCH_TOKENS, distinct, length_batches, places
from trainer.ranking.retrieval.shared import computed
from trainer.ranking.retrieval.system import List


class Pairs(ModelRanker):
    """Re-ranks: it scores or classifies pairs of a query and a document."""

    searches = False
    method: PairModelConfig

    def scores(self, lists: Sequence[List], what: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query: fp32 [n], or logits of classes [n, C]; see `score_lists`."""
        texts = self.collection
        framing = self.method.pair_framing(self.loaded.tokenizer)
        return score_lists(
            self.model.score_pairs, framing, texts.queries, texts.corpus, lists, what=what, device=self.device
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
    query_of = np.repeat([query for query, _ in lists], [len(candidates) for _, candidates in lists])
    document_of = np.concatenate([candidates for _, candidates in lists])
    lengths = np.empty(len(query_of), np.int64)

    def cut() -> Iterator[np.ndarray]:
        for i, (query, document) in enumerate(zip(query_of.tolist(), document_of.tolist(), strict=True)):
            first, second = framing.cut(queries.tokens(query), documents.tokens(document))
            lengths[i] = len(first) + len(second) + framing.frame
            yield np.concatenate([[len(first)], first, second])

    of_pair, first = distinct(cut())
    batch_tokens = batch_tokens or BATCH_TOKENS[torch.device(device).type]

    def scored(batch: list[int]) -> np.ndarray:
        rows = first[batch]
        texts = [queries.tokens(i) for i in query_of[rows]], [documents.tokens(i) for i in document_of[rows]]
        with torch.inference_mode():
            tensors = on_device(framing.arrays(*texts), device)
            scores: np.ndarray = score_pairs(**tensors).float().cpu().numpy()
        return scores

    order: list[int] = []
    parts = []
    with meter(what, "pairs", len(first)) as report:
        for batch, of_batch in computed(length_batches(lengths[first], batch_tokens), scored):
            parts.append(of_batch)
            order += batch
            report(len(order), "")
    scores = np.concatenate(parts)
    if not np.isfinite(scores).all():
        raise InputError(f"{what}: the model's scores are not finite: take an earlier checkpoint")
    ends = np.cumsum([len(candidates) for _, candidates in lists])
    return np.split(scores[places(order)[of_pair]], ends[:-1])
