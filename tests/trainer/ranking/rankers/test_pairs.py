"""Pairs are scored once, in batches of similar lengths, and returned list by list."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.rankers.pairs import List, PairRanker
from deepsiam.trainer.ranking.retrieval.encode import BATCH_TOKENS
from tests.trainer.ranking.retrieval.fakes import Overlap, OverlapConfig, plain_overlap

VOCABULARY = Vocabulary(100, pad=0, unk=1, cls=2, sep=3, mask=4)
LISTS = st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(0, 29), min_size=1, max_size=8)), min_size=1)


class Some:
    """Texts of at least one token; every fifth text is a copy of the first."""

    def __init__(self, number: int, longest: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.texts = [rng.integers(5, 15, rng.integers(1, longest)).astype(np.uint16) for _ in range(number)]
        self.texts[::5] = [self.texts[0]] * len(self.texts[::5])

    def tokens(self, i: int) -> np.ndarray:
        return self.texts[i]


QUERIES, DOCUMENTS = Some(10, 9, seed=0), Some(30, 25, seed=1)


def ranker(model: Overlap) -> PairRanker:
    texts: Any = SimpleNamespace(queries=QUERIES, corpus=DOCUMENTS)
    tokenizer: Any = VOCABULARY
    return PairRanker(LoadedModel(model, OverlapConfig(), tokenizer, Path("run/step")), texts)


def cut(query: int, document: int) -> tuple[list[int], list[int]]:
    return QUERIES.tokens(query)[:6].tolist(), DOCUMENTS.tokens(document)[:14].tolist()


@given(LISTS, st.integers(1, 200), st.sampled_from([0, 3]))
def test_scores_are_those_of_each_pair(lists: list[List], budget: int, classes: int) -> None:
    model = Overlap(classes)
    with patch.dict(BATCH_TOKENS, cpu=budget):
        scores = ranker(model).scores(lists)
    for (query, documents), of_list in zip(lists, scores, strict=True):
        expected = np.array([plain_overlap(*cut(query, document)) for document in documents])
        assert of_list.dtype == np.float32
        np.testing.assert_array_equal(of_list, np.eye(3)[expected % 3] if classes else expected)
    different = {(*map(tuple, cut(query, document)),) for query, documents in lists for document in documents}
    assert sum(rows for rows, _ in model.batches) == len(different)  # equal pairs are scored once
    for rows, width in model.batches:
        assert rows == 1 or rows * (width - 7) <= budget  # widths are rounded up to a multiple of 8
