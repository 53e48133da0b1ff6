"""Score pairs by a model that reads a query and a document together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from data_prep.common.errors import InputError
from data_prep.common.progress import meter
from models.arrays import on_device
from models.matching.pair_model import PairModelConfig
from trainer.ranking.ranker import ModelRanker
from trainer.ranking.retrieval.encode import batch_tokens, distinct, length_batches, places
from trainer.ranking.retrieval.shared import computed
from trainer.ranking.retrieval.system import List


class Pairs(ModelRanker):
    """Re-ranks: it scores or classifies pairs of a query and a document."""

    searches = False
    method: PairModelConfig

    def passes(self, documents: int) -> int:
        """Each document is read with the query."""
        return documents

    def scores(self, lists: Sequence[List], what: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query: fp32 [n], or logits of classes [n, C], in the order given.

        Pairs that are equal after truncation are scored once, so that they tie.

        Raises:
            InputError: a score is not finite.
        """
        framing = self.method.pair_framing(self.loaded.tokenizer)
        queries, documents = self.collection.queries, self.collection.corpus
        query_of = np.repeat([query for query, _ in lists], [len(candidates) for _, candidates in lists])
        document_of = np.concatenate([candidates for _, candidates in lists])
        lengths = np.empty(len(query_of), np.int64)

        def cut() -> Iterator[np.ndarray]:
            for i, (query, document) in enumerate(zip(query_of.tolist(), document_of.tolist(), strict=True)):
                first, second = framing.cut(queries.tokens(query), documents.tokens(document))
                lengths[i] = len(first) + len(second) + framing.frame
                yield np.concatenate([[len(first)], first, second])

        of_pair, first = distinct(cut())

        def scored(batch: list[int]) -> np.ndarray:
            rows = first[batch]
            texts = [queries.tokens(i) for i in query_of[rows]], [documents.tokens(i) for i in document_of[rows]]
            tensors = on_device(framing.arrays(*texts), self.device)
            with torch.inference_mode():
                scores: np.ndarray = self.model.score_pairs(**tensors).float().cpu().numpy()
            return scores

        order: list[int] = []
        parts = []
        with meter(what, "pairs", len(first)) as report:
            for batch, of_batch in computed(length_batches(lengths[first], batch_tokens(self.device)), scored):
                parts.append(of_batch)
                order += batch
                report(len(order), "")
        scores = np.concatenate(parts)
        if not np.isfinite(scores).all():
            raise InputError(f"{what}: the model's scores are not finite: take an earlier checkpoint")
        ends = np.cumsum([len(candidates) for _, candidates in lists])
        return np.split(scores[places(order)[of_pair]], ends[:-1])
