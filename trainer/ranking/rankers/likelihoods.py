"""Models of how likely a text's terms are, given the other text: TILDE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepsiam.data_prep.common.progress import meter
from deepsiam.models.matching.tilde import TildeConfig, terms_in
from deepsiam.trainer.ranking.ranker import VectorRanker, split_by_list
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder, distinct, require_finite
from deepsiam.trainer.ranking.retrieval.system import List, Texts


class LikelihoodRanker(VectorRanker):
    """Re-ranks: no likelihood of all terms outlives its batch, for a collection's would take 120 KB a text."""

    searches = False
    method: TildeConfig

    def passes(self, documents: int) -> int:
        return super().passes(documents) if self.method.alpha < 1 else 0  # its likelihoods may not count

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        texts, alpha = Texts.of_lists(self.collection, lists), self.method.alpha
        lengths = [len(documents) for _, documents in lists]
        queries = np.repeat(np.searchsorted(texts.queries, [query for query, _ in lists]), lengths)
        documents = np.searchsorted(texts.pool, np.concatenate([documents for _, documents in lists]))
        document_texts = list(map(self.documents.framing.cut, texts.pool_tokens()))
        query_texts = list(map(self.queries.framing.cut, texts.query_tokens()))
        terms = terms_in(self.loaded.tokenizer)
        document_terms, query_terms = ([text[terms[text]] for text in side] for side in (document_texts, query_texts))
        scores = np.zeros(len(queries))
        if alpha > 0:
            scores += alpha * log_likelihoods(self.documents, document_texts, documents, query_terms, queries)
        if alpha < 1:
            sums = log_likelihoods(self.queries, query_texts, queries, document_terms, documents)
            counts = np.array(list(map(len, document_terms)))[documents]
            scores += (1 - alpha) * sums / np.maximum(counts, 1)
        return split_by_list(scores.astype(np.float32), lists)


def log_likelihoods(
    encoder: TextEncoder,
    texts: Sequence[np.ndarray],
    pair_texts: np.ndarray,
    terms: Sequence[np.ndarray],
    pair_lists: np.ndarray,
) -> np.ndarray:
    """Sum the logarithms of the likelihoods of terms given texts, for P pairs, fp64 [P].

    Args:
        encoder: gives each text the logarithms of all terms.
        texts: token ids, as the model reads them.
        pair_texts: int64 [P], the text of each pair.
        terms: ids, in lists.
        pair_lists: int64 [P], the list of each pair.
    """
    text_numbers, first_places = distinct(texts)
    numbers = text_numbers[pair_texts]
    order, ends = np.argsort(numbers, kind="stable"), np.bincount(numbers, minlength=len(first_places)).cumsum()
    sums, progress = np.empty(len(pair_texts)), 0
    with meter(encoder.work, "texts", len(first_places)) as report:
        for batch, vectors, _ in encoder.batches([texts[i] for i in first_places]):
            require_finite(vectors, encoder.work)
            for number, term_logs in zip(batch, vectors, strict=True):
                pairs = order[ends[number - 1] if number else 0 : ends[number]]
                lists = [terms[i] for i in pair_lists[pairs].tolist()]
                places = np.repeat(np.arange(len(lists)), list(map(len, lists)))
                sums[pairs] = np.bincount(places, term_logs[np.concatenate(lists)], len(lists))
            report(progress := progress + len(batch), "")
    return sums
