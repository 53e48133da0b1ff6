"""Rankers of terms, of words, of likelihoods and of whole lists: against plain sums and the model's own scores."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.ranking.retrieval import system
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.ranking.retrieval.fakes import Tokens, plain_scores, terms_run, tokens_run
from tests.trainer.runs import write_run

QUERIES = [3, 11, 40]


def test_a_pool_and_lists_have_the_models_scores(opened: Collection) -> None:
    ranker = ranker_of(terms_run(opened), opened)
    assert isinstance(ranker, SparseRanker)
    system = ranker.system(Texts(opened, QUERIES, list(range(120))))
    scores = system.scores(slice(0, len(QUERIES)))
    lists = [(query, [5, 90, 2, 17]) for query in QUERIES]
    for row, query, of_list in zip(scores, QUERIES, ranker.scores(lists), strict=True):
        expected = plain_scores(ranker.loaded, opened, query, range(120))  # type: ignore[arg-type]
        np.testing.assert_allclose(row, expected, rtol=1e-5)
        np.testing.assert_array_equal(of_list, row[[5, 90, 2, 17]])
        assert (row > 0).any()
    other = ranker.system(Texts(opened, QUERIES[1:], list(range(120))), system)
    assert other.documents is system.documents
    np.testing.assert_array_equal(other.scores(slice(0, len(QUERIES) - 1)), scores[1:])


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


class Shares(Tokens):
    """The scores of a list, as shares of 1, with a rounding error that depends on the place."""

    kind = "lists"

    def score(self, queries: Vectors, documents: Vectors) -> torch.Tensor:
        shares = super().score(queries, documents).softmax(dim=1)
        return shares * (1 + 1e-6 * torch.arange(shares.shape[1]))


def test_scores_of_a_list_see_all_of_it_and_equal_texts_tie(
    opened: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "DOCUMENT_VECTORS", 1)
    lists = [(3, [9, 0, 3, 9, 0, 7]), (5, [3, 4])]
    run = tokens_run(opened)
    alone = ranker_of(run, opened).scores(lists)
    run.model.__class__ = Shares
    together = ranker_of(run, opened).scores(lists)
    for logits, shares in zip(alone, together, strict=True):
        np.testing.assert_allclose(shares, np.exp(logits) / np.exp(logits).sum(), rtol=1e-4)
    assert together[0][0] == together[0][3]
    assert together[0][1] == together[0][4]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_likelihoods_are_sums_over_terms_whatever_the_list(opened: Collection, tmp_path: Path, alpha: float) -> None:
    keys = {"name": "tilde", "alpha": alpha, "max_query_tokens": 16, "max_document_tokens": 24}
    loaded = load_trained(write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, **keys))
    lists = [(0, list(range(30))), (1, [5, 3, 29]), (0, [29])]
    found = ranker_of(loaded, opened).scores(lists)
    for (query, documents), scores in zip(lists, found, strict=True):
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, plain_scores(loaded, opened, query, documents), rtol=1e-5)
    assert found[0][29] == found[2][0]
