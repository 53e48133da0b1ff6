"""A multi-vector index: against a plain loop and evaluation, on several ranks, with centroids, and what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes import centroids
from deepsiam.trainer.ranking.indexes.centroids import nearest_of_query, texts_of
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.multi_vector import MultiVectorIndex
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.search import Ranked, merged, packed
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import Texts
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.ranking.indexes.five_blocks import build, queries, recall, tree
from tests.trainer.ranking.retrieval.fakes import tokens_run

QUERIES = list(range(0, 120, 9))


@pytest.fixture
def index(kinds: Kinds) -> MultiVectorIndex:
    return kinds.made["multi_vector"]  # type: ignore[return-value]


def test_centroids_find_nearly_all(
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


def test_vectors_that_half_precision_cannot_hold_are_refused(copies: Collection, tmp_path: Path) -> None:
    trained = tokens_run(copies)
    with torch.no_grad():
        trained.model.trunk.get_input_embeddings().weight.mul_(1e7)  # type: ignore[operator, union-attr]
    with pytest.raises(InputError, match=r"000000.npy as float16: the model's embeddings are not finite"):
        MultiVectorIndex.build(ranker_of(trained, copies), tmp_path / "index")


def test_missing_lists_are_made_again(index: MultiVectorIndex, tmp_path: Path) -> None:
    folder = shutil.copytree(index.folder.directory, tmp_path / "index")
    opened, expected = MultiVectorIndex.open(IndexFolder.open(folder), index.ranker), tree(folder)
    lists = folder / "centroids"
    (lists / "000002.npy").unlink()
    before = (lists / "000001.npy").stat().st_mtime_ns
    with pytest.raises(InputError, match=r"000002.npy: no such file; trainer.index --approximate centroids makes it"):
        opened.require(centroids.NAME)
    opened.prepare(centroids.NAME)
    assert tree(folder) == expected
    assert (lists / "000001.npy").stat().st_mtime_ns == before
