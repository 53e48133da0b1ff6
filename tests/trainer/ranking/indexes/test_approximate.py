"""Approximate search: what share of the exact results each kind finds, their scores, and files that are refused."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes import approximate
from deepsiam.trainer.ranking.indexes.approximate import KINDS, index_file, load, make
from deepsiam.trainer.ranking.retrieval.search import search

TEXTS, WIDTH = 3_000, 32


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """Vectors around 60 centres, as texts cluster around topics; some are equal."""
    rng = np.random.default_rng(0)
    around = rng.standard_normal((60, WIDTH))[rng.integers(60, size=TEXTS)] + rng.standard_normal((TEXTS, WIDTH)) / 2
    around[1000:1010] = around[0]
    return around.astype(np.float32)


@pytest.fixture(scope="module")
def queries(vectors: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.asarray(vectors[::50] + rng.standard_normal((60, WIDTH)) / 4).astype(np.float32)


@pytest.fixture(scope="module", params=KINDS)
def file(request: pytest.FixtureRequest, vectors: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = index_file(tmp_path_factory.mktemp("index"), request.param)
    make(request.param, vectors, path)
    assert [p.name for p in path.parent.iterdir()] == [f"approximate-{request.param}.faiss"]
    return path


def test_nearly_all_of_the_exact_results_are_found(file: Path, queries: np.ndarray, vectors: np.ndarray) -> None:
    exact = search(queries, vectors, 10)
    found = approximate.search(load(file, vectors), queries, vectors, 10)
    recall = np.mean([np.isin(own, row.documents).mean() for own, row in zip(exact.documents, found, strict=True)])
    assert recall > 0.95
    ties = 0
    for row, query in zip(found, queries, strict=True):
        products = vectors[row.documents].astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_allclose(row.scores, products, rtol=1e-6)
        assert (np.diff(row.scores) <= 0).all()
        tied = np.flatnonzero(np.diff(row.scores) == 0)
        assert (row.documents[tied] < row.documents[tied + 1]).all()
        ties += len(tied)
    assert ties > 5


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_a_few_vectors_are_all_found(kind: str, vectors: np.ndarray, queries: np.ndarray, tmp_path: Path) -> None:
    for few in (vectors[:1], vectors[:3]):
        make(kind, few, tmp_path / f"{len(few)}.faiss")
        for row in approximate.search(load(tmp_path / f"{len(few)}.faiss", few), queries, few, 10):
            assert sorted(row.documents.tolist()) == list(range(len(few)))


def test_files_of_other_vectors_or_none_are_refused(file: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "half.faiss").write_bytes(file.read_bytes()[:1000])
    for path, others, words in (
        (file, vectors[:-1], "was made from other vectors"),
        (file, vectors[:, :-1], "was made from other vectors"),
        (tmp_path / "none.faiss", vectors, "no such file; trainer.index --approximate makes it"),
        (tmp_path / "half.faiss", vectors, "half.faiss: damaged"),
    ):
        with pytest.raises(InputError, match=words):
            load(path, others)


def test_what_cannot_be_made_is_refused(vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: str, some: np.ndarray, path: Path, words: str) -> None:
        with pytest.raises(InputError, match=words):
            make(kind, some, path)

    refused("pq", vectors[:200], tmp_path / "a.faiss", "--approximate pq: needs")
    refused("pq", vectors[:, :30], tmp_path / "a.faiss", "--approximate pq: needs")
    refused("ivf", vectors[:100], tmp_path / "none" / "a.faiss", "cannot write")
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    refused("hnsw", vectors, tmp_path / "a.faiss", r"not installed: faiss; run: pip install 'deepsiam\[faiss\]'")
    assert not list(tmp_path.iterdir())
