"""Dense and multi-vector indexes: blocks, precision, students, centroids, and vectors that are refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import deepsiam
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import train
from deepsiam.trainer import search
from deepsiam.trainer.ranking.indexes import centroids
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.centroids import nearest_of_query, texts_of
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.multi_vector import MultiVectorIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker, ranker_of
from deepsiam.trainer.ranking.retrieval.search import Ranked, merged, packed
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests import toy
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.ranking.indexes.five_blocks import build, queries, recall, tree
from tests.trainer.ranking.retrieval.fakes import tokens_run
from tests.trainer.runs import write_run


@given(st.integers(0, 47), st.integers(0, 60), st.lists(st.integers(0, 46)))
def test_rows_of_blocks_are_those_of_one_array(start: int, length: int, places: list[int]) -> None:
    whole = np.arange(47 * 3, dtype=np.float32).reshape(47, 3)
    blocks = Blocks([whole[:20], whole[20:23], whole[23:23], whole[23:]])
    assert len(blocks) == 47
    if start < 47:
        np.testing.assert_array_equal(blocks[start : start + length], whole[start : start + length])
    np.testing.assert_array_equal(blocks[np.array(places, np.int64)], whole[places])
    for rank in range(3):
        share = blocks.share(rank, 3)
        own = np.arange(len(share))
        np.testing.assert_array_equal(share[own], whole[share.numbers(own)])


def test_queries_have_the_precision_of_the_documents(kinds: Kinds, copies: Collection, tmp_path: Path) -> None:
    DenseIndex.build(open_ranker(kinds.runs["dense"][0], copies, "bf16"), tmp_path / "index")
    ranker = open_index(tmp_path / "index").ranker
    assert isinstance(ranker, ModelRanker)
    assert ranker.precision == "bf16"


def test_a_student_searches_its_teacher(kinds: Kinds, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The student has another width, with a layer to the teacher's, and another tokenizer."""
    index = kinds.made["dense"]
    assert isinstance(index, DenseIndex)
    texts = [*index.collection.corpus.texts()][:50]
    tokenizer = train(texts, 300, tmp_path / "tokenizer.json")
    trunk = {**toy.TRUNK, "hidden_size": 16, "vocab_size": tokenizer.vocab_size}
    keys = {"pooling": "mean", "projection": index.vectors.width, "max_query_tokens": 12}
    student = write_run(tmp_path / "run", tokenizer.path, seed=5, trunk=trunk, name="siamese", **keys)
    folder, queries = index.folder.directory, [" ".join(text.split()[:4]) for text in texts[:9]]
    found = open_index(folder, query_model=student).search(queries, 5)
    scores = deepsiam.load(student).encode_query(queries) @ np.concatenate(index.vectors.arrays).T
    rows = dict(zip(index.collection.corpus.ids, index.documents.rows.tolist(), strict=True))  # of documents' vectors
    for hits, row in zip(found, scores, strict=True):
        assert [hit.score for hit in hits] == pytest.approx([row[rows[hit.id]] for hit in hits], rel=1e-4)
        assert hits[0].score == pytest.approx(row.max(), rel=1e-4)
    search.main([str(folder), "--query-model", str(student), queries[0]])
    assert found[0][0].id in capsys.readouterr().out


QUERIES = list(range(0, 120, 9))


@pytest.fixture
def index(kinds: Kinds) -> MultiVectorIndex:
    return kinds.made["multi_vector"]  # type: ignore[return-value]


def test_centroids_find_almost_all(
    index: MultiVectorIndex, copies: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = index.search_share(queries(copies)[:-1], 10)
    scored: list[int] = []

    def counted(of_query: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        found = texts_of(of_query, pairs)
        scored.append(len(found))
        return found

    monkeypatch.setattr(centroids, "texts_of", counted)
    recalls, shares = {}, {}
    for probe in (1, default := centroids.PROBE, 10_000):
        scored.clear()
        monkeypatch.setattr(centroids, "PROBE", probe)
        near = index.search_share(queries(copies)[:-1], 10, centroids.NAME)
        recalls[probe] = recall(exact, near)
        shares[probe] = sum(scored) / len(QUERIES) / len(index.ends)
    assert list(recalls.values()) == sorted(recalls.values())
    assert recalls[1] < recalls[default]
    assert recalls[default] > 0.95
    assert shares[1] < 0.6
    assert recalls[10_000] == shares[10_000] == 1


def test_any_model_of_several_vectors_has_an_index(copies: Collection, tmp_path: Path) -> None:
    ranker = ranker_of(tokens_run(copies), copies)
    index = build("multi_vector", ranker, tmp_path / "index", "float32")
    scores = ranker.system(Texts(copies, QUERIES, list(range(120)))).scores(slice(0, len(QUERIES)))
    for ranked, row in zip(index.search_share(queries(copies)[:-1], 120), scores, strict=True):
        np.testing.assert_allclose(ranked.scores, row[ranked.documents], rtol=1e-4, atol=1e-6)


def test_texts_near_a_query_are_those_of_its_centroids(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.array([[0, 0, 2, 2, 2, 5], [3, 7, 0, 3, 9, 1]], np.int32)
    assert texts_of(np.array([0, 2]), pairs).tolist() == [0, 3, 7, 9]
    assert texts_of(np.array([1, 3]), pairs).tolist() == []
    of_centroids = np.eye(5, dtype=np.float32)
    query = np.array([[0, 3, 2, 1, 0], [0, 9, 0, 0, 8]], np.float32)
    monkeypatch.setattr(centroids, "PROBE", 2)
    assert nearest_of_query(query, of_centroids).tolist() == [1, 2, 4]
    monkeypatch.setattr(centroids, "PROBE", 9)
    assert nearest_of_query(query, of_centroids[:3]).tolist() == [0, 1, 2]


def test_rankings_of_different_lengths_are_packed() -> None:
    rows = [NOTHING, Ranked(np.array([7, 2]), np.array([0.5, -1.5], np.float32))]
    others = [NOTHING, Ranked(np.array([1, 3, 9]), np.array([2.0, 0.5, -1.5], np.float32))]
    found = merged(np.concatenate([packed(rows, 3), packed(others, 3)], axis=1), 4)
    assert [row.documents.tolist() for row in found] == [[], [1, 3, 7, 2]]
    assert found[1].scores.tolist() == [2, 0.5, 0.5, -1.5]


def test_missing_lists_are_made_again(index: MultiVectorIndex, tmp_path: Path) -> None:
    folder = shutil.copytree(index.folder.directory, tmp_path / "index")
    opened, expected = MultiVectorIndex.open(IndexFolder.open(folder), index.ranker), tree(folder)
    lists = folder / "centroids"
    (lists / "000002.npy").unlink()
    before = (lists / "000001.npy").stat().st_mtime_ns
    for ask in (opened.require, lambda name: opened.search("abc", 3, name)):
        with pytest.raises(InputError, match=r"000002.npy: no such file; trainer.index --approximate centroids makes"):
            ask(centroids.NAME)
    opened.prepare(centroids.NAME)
    assert tree(folder) == expected
    assert (lists / "000001.npy").stat().st_mtime_ns == before


def test_vectors_that_are_not_finite_are_refused(kinds: Kinds, copies: Collection, tmp_path: Path) -> None:
    model, tokens = load_trained(kinds.runs["dense"][0]), tokens_run(copies)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.fill_(np.nan)
        tokens.model.trunk.get_input_embeddings().weight.mul_(1e7)  # type: ignore[operator, union-attr]
    with pytest.raises(InputError, match=r"encode 000000.npy: the model's embeddings are not finite"):
        DenseIndex.build(ranker_of(model, copies), tmp_path / "dense")
    with pytest.raises(InputError, match=r"000000.npy as float16: the model's embeddings are not finite"):
        MultiVectorIndex.build(ranker_of(tokens, copies), tmp_path / "tokens")
    for name in ("dense", "tokens"):
        assert not list((tmp_path / name / "blocks").iterdir())
