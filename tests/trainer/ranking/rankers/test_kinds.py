"""Rankers of terms, of words, of likelihoods and of whole lists: against plain sums and the model's own scores."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.matching.tilde import terms_in
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.ranking.retrieval import system
from deepsiam.trainer.ranking.retrieval.search import salts_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.ranking.retrieval.fakes import Tokens, plain_scores, terms_run, tokens_run
from tests.trainer.runs import write_run

QUERIES = [3, 11, 40]


@pytest.fixture
def ranker(opened: Collection) -> SparseRanker:
    ranker = ranker_of(terms_run(opened), opened)
    assert isinstance(ranker, SparseRanker)
    return ranker


def test_a_pool_and_lists_have_the_models_scores(ranker: SparseRanker, opened: Collection) -> None:
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


def test_with_salts_ties_are_the_querys_own(ranker: SparseRanker, opened: Collection) -> None:
    system = ranker.system(Texts(opened, QUERIES, list(range(120))))
    plain, salted = system.rank(120), system.rank(120, salts_of(QUERIES))
    for one, other in zip(plain, salted, strict=True):
        assert sorted(one.documents.tolist()) == sorted(other.documents.tolist())
        np.testing.assert_allclose(one.scores, other.scores, rtol=2.0**-11)


def test_weights_of_zero_are_not_held(ranker: SparseRanker, opened: Collection) -> None:
    held = ranker.documents.vectors(map(opened.corpus.tokens, range(120))).flat
    assert held.dtype.names == ("term", "weight")  # type: ignore[attr-defined]
    assert held["weight"].all()  # type: ignore[call-overload]
    most = 14  # tokens of a document
    assert len(held) <= 120 * most


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


def test_a_score_that_depends_on_the_list_sees_all_of_it_and_equal_texts_tie(
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


LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 24}
LISTS = [(0, list(range(30))), (1, [5, 3, 29]), (0, [29])]


def _ranker(opened: Collection, folder: Path, alpha: float) -> Ranker:
    tokenizer = opened.directory / "tokenizer.json"
    run = write_run(folder / f"{alpha}", tokenizer, seed=3, name="tilde", alpha=alpha, **LENGTHS)
    return ranker_of(load_trained(run), opened)


def _likelihoods(embed, framing, tokens):
    arrays = {name: torch.from_numpy(array) for name, array in framing.arrays([tokens]).items()}
    with torch.inference_mode():
        vectors, _ = embed(**arrays)
    return vectors[0, 0].double().numpy()


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_scores_are_sums_over_terms(opened: Collection, tmp_path: Path, alpha: float) -> None:
    ranker = _ranker(opened, tmp_path, alpha)
    model, terms = ranker.model.eval(), terms_in(opened.tokenizer)
    framings = ranker.method.query_framing(opened.tokenizer), ranker.method.document_framing(opened.tokenizer)
    found = ranker.scores(LISTS)
    for (query, documents), scores in zip(LISTS, found, strict=True):
        assert scores.dtype == np.float32
        of_query = framings[0].cut(opened.queries.tokens(query))
        given_query = _likelihoods(model.embed_queries, framings[0], of_query)
        for document, score in zip(documents, scores.tolist(), strict=True):
            of_document = framings[1].cut(opened.corpus.tokens(document))
            given_document = _likelihoods(model.embed_documents, framings[1], of_document)
            sides = given_document[of_query[terms[of_query]]].sum(), given_query[of_document[terms[of_document]]].mean()
            assert score == pytest.approx(alpha * sides[0] + (1 - alpha) * sides[1], rel=1e-5)


def test_a_score_does_not_depend_on_its_list(opened: Collection, tmp_path: Path) -> None:
    ranker = _ranker(opened, tmp_path, 0.5)
    together, alone = ranker.scores(LISTS), [ranker.scores([one])[0] for one in LISTS]
    for first, second in zip(together, alone, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6)
    assert together[0][29] == together[2][0]
