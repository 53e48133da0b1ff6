"""A BM25 index: against BM25 over the texts themselves, on several ranks, its files, and what is refused."""

import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.indexes import bm25 as bm25_module
from deepsiam.trainer.ranking.indexes.bm25 import Bm25Index
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.bm25 import DESCRIPTION, FINGERPRINT, Bm25
from tests.trainer.ranking.retrieval.fakes import assert_same

QUERIES = [*range(0, 120, 7)]


@pytest.fixture(scope="module")
def index(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Bm25Index:
    return Bm25Index.build(Bm25Ranker(Collection.open(toy_collection)), tmp_path_factory.mktemp("made") / "index")


def texts(index: Bm25Index) -> list[str]:
    return [*(index.collection.queries.text(i) for i in QUERIES), "unheard", ""]


@pytest.mark.parametrize("k", [1, 10, 500])
def test_its_rankings_are_those_of_bm25_over_the_texts(index: Bm25Index, k: int) -> None:
    documents = [index.collection.corpus.text(i) for i in range(120)]
    expected = Bm25.of_texts(texts(index), documents).rank(k)
    assert_same(index.search_share(texts(index), k), expected)
    assert [len(ranked.documents) for ranked in expected[-2:]] == [0, 0]


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
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "the"}\n{"_id": "b", "text": "of"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "the"}\n')
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    collection = build_collection(
        "beir", [folder], folder, tokenizers.load(index.collection.directory / "tokenizer.json")
    )
    empty = Bm25Index.build(Bm25Ranker(collection), tmp_path / "index")
    (ranked,) = empty.search_share(["the word"], 5)
    assert len(ranked.documents) == 0


def test_an_index_of_other_words_is_refused(index: Bm25Index, tmp_path: Path) -> None:
    shutil.copytree(index.folder.directory, tmp_path / "old")
    manifest = tmp_path / "old" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(FINGERPRINT, DESCRIPTION))
    with pytest.raises(InputError, match="old: older code split its texts into other words: make the index again"):
        open_index(tmp_path / "old")
    with pytest.raises(InputError, match="another model: name another folder"):
        Bm25Index.build(Bm25Ranker(index.collection), tmp_path / "old")


def test_an_approximation_is_refused(index: Bm25Index) -> None:
    for ask in (index.prepare, index.require):
        with pytest.raises(InputError, match="--approximate hnsw: .* has none: leave it out"):
            ask("hnsw")
