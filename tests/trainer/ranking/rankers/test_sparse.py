"""The ranker of sparse models: against the model's own dense weights, for a pool and for lists, and what it holds."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.rankers.sparse import Sparse
from deepsiam.trainer.ranking.retrieval.search import salts_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from tests.trainer.ranking.retrieval.fakes import plain_scores, terms_run

QUERIES = [3, 11, 40]


@pytest.fixture(scope="module")
def collection(toy_collection: Path) -> Collection:
    return Collection.open(toy_collection)


@pytest.fixture(scope="module")
def trained(collection: Collection) -> LoadedModel:
    return terms_run(collection)


@pytest.fixture(scope="module")
def ranker(trained: LoadedModel, collection: Collection) -> Sparse:
    ranker = ranker_of(trained, collection)
    assert isinstance(ranker, Sparse)
    return ranker


def test_a_pool_and_lists_have_the_models_scores(ranker: Sparse, trained: LoadedModel, collection: Collection) -> None:
    system = ranker.system(Texts(collection, QUERIES, list(range(120))))
    scores = system.scores(slice(0, len(QUERIES)))
    lists = [(query, [5, 90, 2, 17]) for query in QUERIES]
    for row, query, of_list in zip(scores, QUERIES, ranker.scores(lists), strict=True):
        expected = plain_scores(trained, collection, query, range(120))  # type: ignore[arg-type]
        np.testing.assert_allclose(row, expected, rtol=1e-5)
        np.testing.assert_array_equal(of_list, row[[5, 90, 2, 17]])
        assert (row > 0).any()
    other = ranker.system(Texts(collection, QUERIES[1:], list(range(120))), system)
    assert other.documents is system.documents
    np.testing.assert_array_equal(other.scores(slice(0, len(QUERIES) - 1)), scores[1:])


def test_with_salts_ties_are_the_querys_own(ranker: Sparse, collection: Collection) -> None:
    system = ranker.system(Texts(collection, QUERIES, list(range(120))))
    plain, salted = system.rank(120), system.rank(120, salts_of(QUERIES))
    for one, other in zip(plain, salted, strict=True):
        assert sorted(one.documents.tolist()) == sorted(other.documents.tolist())
        np.testing.assert_allclose(one.scores, other.scores, rtol=2.0**-11)


def test_weights_of_zero_are_not_held(ranker: Sparse, collection: Collection) -> None:
    held = ranker.documents.vectors(map(collection.corpus.tokens, range(120))).flat
    assert held.dtype.names == ("term", "weight")  # type: ignore[attr-defined]
    assert held["weight"].all()  # type: ignore[call-overload]
    most = 14  # tokens of a document
    assert len(held) <= 120 * most
