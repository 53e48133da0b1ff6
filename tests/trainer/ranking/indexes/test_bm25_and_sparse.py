"""Indexes of words and of terms: stopped, empty, of other words; what is told and shown of terms."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.indexes import bm25 as bm25_module
from deepsiam.trainer.ranking.indexes.bm25 import Bm25Index
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.indexes.serve import page
from deepsiam.trainer.ranking.indexes.sparse import SparseIndex
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.bm25 import DESCRIPTION, FINGERPRINT
from deepsiam.trainer.ranking.retrieval.system import Texts
from tests import toy
from tests.trainer.ranking.retrieval.fakes import terms_run


@pytest.fixture(scope="module")
def index(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Bm25Index:
    return Bm25Index.build(Bm25Ranker(Collection.open(toy_collection)), tmp_path_factory.mktemp("made") / "index")


def test_a_stopped_build_begins_again(index: Bm25Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bm25_module, "index_words", stops)
        with pytest.raises(KeyboardInterrupt):
            Bm25Index.build(Bm25Ranker(index.collection), tmp_path / "index")
    with pytest.raises(InputError, match="an unfinished index"):
        IndexFolder.open(tmp_path / "index")
    assert Bm25Index.build(Bm25Ranker(index.collection), tmp_path / "index").folder.manifest == index.folder.manifest
    monkeypatch.setattr(bm25_module, "index_words", lambda _: pytest.fail("it is there"))
    Bm25Index.build(Bm25Ranker(index.collection), tmp_path / "index")


def test_documents_without_a_word_are_indexed(index: Bm25Index, tmp_path: Path) -> None:
    folder = toy.write_beir(tmp_path / "c", {"a": "the", "b": "of"}, {"q": "the"}, test="q\ta\t1\n")
    tokenizer = tokenizers.load(index.collection.directory / "tokenizer.json")
    collection = build_collection("beir", [folder], folder, tokenizer)
    empty = Bm25Index.build(Bm25Ranker(collection), tmp_path / "index")
    (ranked,) = empty.search_share(["the word"], 5)
    assert len(ranked.documents) == 0


def test_an_index_of_other_words_and_an_approximation_are_refused(index: Bm25Index, tmp_path: Path) -> None:
    shutil.copytree(index.folder.directory, tmp_path / "old")
    manifest = tmp_path / "old" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(FINGERPRINT, DESCRIPTION))
    with pytest.raises(InputError, match="old: older code split its texts into other words: make the index again"):
        open_index(tmp_path / "old")
    with pytest.raises(InputError, match="another model: name another folder"):
        Bm25Index.build(Bm25Ranker(index.collection), tmp_path / "old")
    for ask in (index.prepare, index.require):
        with pytest.raises(InputError, match="--approximate hnsw: .* has none: leave it out"):
            ask("hnsw")


def test_terms_are_told_given_back_and_shown(copies: Collection, tmp_path: Path) -> None:
    ranker: Any = ranker_of(terms_run(copies), copies)
    index = SparseIndex.build(ranker, tmp_path / "index")
    system = ranker.system(Texts(copies, list(range(len(copies.queries))), list(range(120))))
    different = np.unique(system.documents.rows)
    counts = system.documents.counts(different)
    has = np.zeros((2, 300, ranker.vocabulary), bool)
    for side, encoded, rows in ((0, system.queries, system.queries.rows), (1, system.documents, different)):
        for i, row in enumerate(rows):
            has[side, i, encoded.of(row)["term"]] = True
    flops = has[0].sum(axis=0) @ has[1].sum(axis=0) / len(system.queries.rows) / len(different)
    words = f"120 documents of 90 different texts, {counts.mean():.1f} terms each (at most {counts.max()})"
    assert words in str(index)
    assert f"{flops:.2f} FLOPS" in str(index)

    given_back = dict(index.texts())
    assert sorted(given_back) == list(range(120))
    for document, terms in given_back.items():
        own = system.documents.of(system.documents.rows[document])
        assert terms["term"].tolist() == own["term"].tolist()
        np.testing.assert_allclose(terms["weight"], own["weight"], rtol=2.0**-11)

    (found,) = index.search([copies.queries.text(0)], 5)
    vocabulary = copies.tokenizer.vocabulary()
    for hit in found:
        assert sum(weight for _, weight in hit.terms) == pytest.approx(hit.score, rel=1e-5)
        assert all(term in vocabulary for term, _ in hit.terms)
    (term, weight), *_ = found[0].terms
    assert f"{term} {weight:.2f}" in page("q", 5, {"index": found})
