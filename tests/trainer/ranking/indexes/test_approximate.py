"""Approximate search: what share of the exact results each kind finds, their scores, and files that are refused."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.common import extras
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes import approximate
from deepsiam.trainer.ranking.indexes.approximate import KINDS, index_file, load, make
from deepsiam.trainer.ranking.retrieval.search import search

TEXTS, WIDTH = 6_000, 32


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
    return np.asarray(vectors[::100] + rng.standard_normal((60, WIDTH)) / 4).astype(np.float32)


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
    for row, query in zip(found, queries, strict=True):
        products = vectors[row.documents].astype(np.float64) @ query.astype(np.float64)
        np.testing.assert_allclose(row.scores, products, rtol=1e-6)
        assert (np.diff(row.scores) <= 0).all()
        tied = np.flatnonzero(np.diff(row.scores) == 0)
        assert (row.documents[tied] < row.documents[tied + 1]).all()


def test_equal_vectors_are_in_their_order(file: Path, vectors: np.ndarray) -> None:
    query = np.asarray(vectors[:1]) * 9
    (row,) = approximate.search(load(file, vectors), query, vectors, 12)
    place = {document: rank for rank, document in enumerate(row.documents.tolist())}
    copies = [place[document] for document in (0, *range(1000, 1010)) if document in place]
    assert copies == sorted(copies)
    assert len(copies) > 5


def test_files_of_other_vectors_or_none_are_refused(file: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was made from other vectors"):
        load(file, vectors[:-1])
    with pytest.raises(InputError, match="was made from other vectors"):
        load(file, vectors[:, :-1])
    with pytest.raises(InputError, match="no such file; trainer.index --approximate makes it"):
        load(tmp_path / "none.faiss", vectors)
    (tmp_path / "half.faiss").write_bytes(file.read_bytes()[:1000])
    with pytest.raises(InputError, match="half.faiss: damaged"):
        load(tmp_path / "half.faiss", vectors)


def test_too_few_vectors_to_quantise_are_refused(vectors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--approximate pq: needs"):
        make("pq", vectors[:200], tmp_path / "a.faiss")
    with pytest.raises(InputError, match="--approximate pq: needs"):
        make("pq", vectors[:, :30], tmp_path / "a.faiss")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
@pytest.mark.parametrize("texts", [1, 3])
def test_a_few_vectors_are_all_found(
    kind: str, texts: int, vectors: np.ndarray, queries: np.ndarray, tmp_path: Path
) -> None:
    make(kind, vectors[:texts], tmp_path / "a.faiss")
    for row in approximate.search(load(tmp_path / "a.faiss", vectors[:texts]), queries, vectors[:texts], 10):
        assert sorted(row.documents.tolist()) == list(range(texts))


def test_without_faiss_it_says_what_to_install(
    vectors: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=r"not installed: faiss; run: pip install 'deepsiam\[faiss\]'"):
        make("hnsw", vectors, tmp_path / "a.faiss")


def test_a_folder_that_is_missing_cannot_be_written(vectors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        make("ivf", vectors[:100], tmp_path / "none" / "a.faiss")
