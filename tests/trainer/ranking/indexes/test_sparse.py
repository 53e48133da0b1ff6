"""An index of terms: against evaluation and a dense product; what is shown of it."""

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.indexes.serve import page
from deepsiam.trainer.ranking.indexes.sparse import SparseIndex
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.ranking.retrieval.system import Texts
from tests.trainer.ranking.retrieval.fakes import terms_run

QUERIES = list(range(0, 120, 9))


@pytest.fixture(scope="module")
def ranker(copies: Collection) -> SparseRanker:
    ranker = ranker_of(terms_run(copies), copies)
    assert isinstance(ranker, SparseRanker)
    return ranker


@pytest.fixture(scope="module", params=["float16", "float32"])
def index(
    request: pytest.FixtureRequest, ranker: SparseRanker, tmp_path_factory: pytest.TempPathFactory
) -> SparseIndex:
    return SparseIndex.build(ranker, tmp_path_factory.mktemp("made") / "index", dtype=request.param)


def texts(collection: Collection) -> list[str]:
    return [collection.queries.text(i) for i in QUERIES]


def test_search_is_the_ranking_of_evaluation(index: SparseIndex, ranker: SparseRanker, copies: Collection) -> None:
    evaluated = ranker.system(Texts(copies, QUERIES, list(range(120))))
    expected = evaluated.scores(slice(0, len(QUERIES)))
    exact = index.folder.manifest["dtype"] == "float32"
    for k in (1, 7, 500):
        for ranked, row, scores in zip(index.search_share(texts(copies), k), evaluated.rank(k), expected, strict=True):
            np.testing.assert_allclose(ranked.scores, scores[ranked.documents], rtol=0 if exact else 2.0**-11)
            assert len(ranked.documents) == len(row.documents) == min(k, (scores > 0).sum())
            if exact:
                assert ranked.documents.tolist() == row.documents.tolist()


def test_it_tells_the_terms_of_texts_and_what_a_query_costs(
    index: SparseIndex, ranker: SparseRanker, copies: Collection
) -> None:
    system = ranker.system(Texts(copies, list(range(len(copies.queries))), list(range(120))))
    different = np.unique(system.documents.rows)
    counts = system.documents.counts(different)
    has = np.zeros((2, 300, ranker.vocabulary), bool)
    for side, encoded in enumerate((system.queries, system.documents)):
        rows = encoded.rows if side == 0 else different
        for i, row in enumerate(rows):
            has[side, i, encoded.of(row)["term"]] = True
    flops = has[0].sum(axis=0) @ has[1].sum(axis=0) / len(system.queries.rows) / len(different)
    text = str(index)
    assert f"120 documents of 90 different texts, {counts.mean():.1f} terms each (at most {counts.max()})" in text
    assert f"{flops:.2f} FLOPS" in text


def test_it_gives_back_the_terms_of_every_document(
    index: SparseIndex, ranker: SparseRanker, copies: Collection
) -> None:
    encoded = ranker.documents.vectors(map(copies.corpus.tokens, range(120)))
    found = dict(index.texts())
    assert sorted(found) == list(range(120))
    for document, terms in found.items():
        own = encoded.of(encoded.rows[document])
        assert terms["term"].tolist() == own["term"].tolist()
        np.testing.assert_allclose(terms["weight"], own["weight"], rtol=2.0**-11)


def test_matched_terms_are_shown_and_add_up_to_the_score(index: SparseIndex, copies: Collection) -> None:
    (found,) = index.search(texts(copies)[:1], 5)
    vocabulary = copies.tokenizer.vocabulary()
    for document in found:
        assert sum(weight for _, weight in document.terms) == pytest.approx(document.score, rel=1e-5)
        assert all(term in vocabulary for term, _ in document.terms)
    shown = page("q", 5, {"index": found})
    (term, weight), *_ = found[0].terms
    assert f"{term} {weight:.2f}" in shown
