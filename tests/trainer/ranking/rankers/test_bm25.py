"""BM25 as a ranker: what it needs, and lists scored among their own documents."""

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.system import Texts


def test_without_bm25s_it_says_what_to_install(opened: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=r"not installed: bm25s; run: pip install 'deepsiam\[evaluate\]'"):
        Bm25Ranker(opened)


def test_a_list_is_scored_with_the_words_of_the_lists_documents(opened: Collection) -> None:
    ranker = Bm25Ranker(opened)
    lists = [(3, [7, 3]), (0, [0]), (3, [9])]
    pool = [0, 3, 7, 9]
    scores = ranker.system(Texts(opened, [0, 3], pool)).scores(slice(0, 2))
    for (query, documents), of_list in zip(lists, ranker.scores(lists), strict=True):
        expected = scores[[0, 3].index(query), [pool.index(document) for document in documents]]
        np.testing.assert_array_equal(of_list, expected)
