"""Score pairs by a model that reads a query and a document together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from deepsiam.data_prep.common.progress import meter
from deepsiam.models.arrays import on_device
from deepsiam.models.matching.pair_model import PairModelConfig
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.retrieval.encode import distinct
from deepsiam.trainer.ranking.retrieval.system import List


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

        def score(batch: list[int]) -> torch.Tensor:
            rows = first[batch]
            texts = [queries.tokens(i) for i in query_of[rows]], [documents.tokens(i) for i in document_of[rows]]
            scores: torch.Tensor = self.model.score_pairs(**on_device(framing.arrays(*texts), self.device))
            return scores

        with meter(what, "pairs", len(first)) as report:
            scores = self.by_length(lengths[first].tolist(), score, lambda done: report(done, ""))
        ends = np.cumsum([len(candidates) for _, candidates in lists])
        return np.split(scores[of_pair], ends[:-1])
