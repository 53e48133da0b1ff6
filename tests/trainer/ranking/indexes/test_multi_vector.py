"""A multi-vector index: against a plain loop and evaluation, on several ranks, with centroids, and what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.indexes import centroids
from deepsiam.trainer.ranking.indexes.centroids import nearest_of_query, texts_of
from deepsiam.trainer.ranking.indexes.folder import Folder
from deepsiam.trainer.ranking.indexes.multi_vector import MultiVectorIndex
from deepsiam.trainer.ranking.indexes.writer import SeveralVectors
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.search import Ranked, merged, packed
from deepsiam.trainer.ranking.retrieval.shared import NOTHING
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.ranking.indexes.shares import tree
from tests.trainer.ranking.retrieval.fakes import tokens_run
from tests.trainer.runs import write_run

BLOCK = 25  # of 120 texts
LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 24, "dimension": 16}
QUERIES = list(range(0, 120, 9))


@pytest.fixture(scope="module")
def collection(toy_collection: Path) -> Collection:
    return Collection.open(toy_collection)


@pytest.fixture(scope="module")
def trained(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("colbert")
    return load_trained(write_run(folder / "run", collection.directory / "tokenizer.json", name="colbert", **LENGTHS))


@pytest.fixture(scope="module", params=["float16", "float32"])
def index(
    request: pytest.FixtureRequest,
    trained: LoadedModel,
    collection: Collection,
    tmp_path_factory: pytest.TempPathFactory,
) -> MultiVectorIndex:
    return build(trained, collection, tmp_path_factory.mktemp("made") / "index", request.param)


def build(trained: LoadedModel, collection: Collection, folder: Path, dtype: str | None = None) -> MultiVectorIndex:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SeveralVectors, "BLOCK", BLOCK)
        index = MultiVectorIndex.build(ranker_of(trained, collection), folder, dtype=dtype)
    index.prepare(centroids.NAME)
    return index


def texts(collection: Collection) -> list[str]:
    return [collection.queries.text(i) for i in QUERIES]


def test_what_is_stored_is_what_the_model_encodes(
    index: MultiVectorIndex, trained: LoadedModel, collection: Collection
) -> None:
    task = Texts(collection, QUERIES, list(range(120)))
    encoded = ranker_of(trained, task.collection).system(task).documents  # type: ignore[union-attr]
    assert [len(array) for array in np.split(np.arange(120), index.bounds[1:-1])] == [25, 25, 25, 25, 20]
    starts = np.concatenate([[0], index.ends[:-1]])
    for document in (0, 24, 25, 119):
        text = index.documents.rows[document]
        stored = index.vectors[np.arange(starts[text], index.ends[text])]
        assert stored.dtype == index.folder.manifest["dtype"]
        exact = encoded.of(encoded.rows[document])
        distances = np.linalg.norm(stored.astype(np.float64) - exact, axis=1)
        assert (distances <= (2.0**-11 if stored.dtype == np.float16 else 1e-6)).all()


def test_exact_search_is_the_ranking_of_evaluation(
    index: MultiVectorIndex, trained: LoadedModel, collection: Collection
) -> None:
    evaluated = ranker_of(trained, collection).system(Texts(collection, QUERIES, list(range(120))))
    expected = evaluated.scores(slice(0, len(QUERIES)))
    tolerance = 8 * 2.0**-11 if index.folder.manifest["dtype"] == "float16" else 1e-5  # for 8 vectors of length 1
    for k in (1, 7, 500):
        found = index.search(texts(collection), k)
        for ranked, scores, row in zip(found, expected, evaluated.rank(k), strict=True):
            assert len(set(ranked.documents.tolist())) == min(k, 120)
            np.testing.assert_allclose(ranked.scores, scores[ranked.documents], atol=tolerance)
            np.testing.assert_allclose(ranked.scores, row.scores, atol=tolerance)
            assert (np.diff(ranked.scores) <= 0).all()
            if index.folder.manifest["dtype"] == "float32":
                apart = np.abs(np.diff(row.scores, prepend=np.inf, append=-np.inf)) > 1e-5
                clear = apart[:-1] & apart[1:]  # no other score is within rounding error
                np.testing.assert_array_equal(ranked.documents[clear], row.documents[clear])


def test_the_scores_of_one_query_are_those_among_many(index: MultiVectorIndex, collection: Collection) -> None:
    many = index.search(texts(collection), 10)
    near = index.search(texts(collection), 10, centroids.NAME)
    for number in (0, 5):
        for ranked, approximation in ((many[number], None), (near[number], centroids.NAME)):
            (alone,) = index.search([texts(collection)[number]], 10, approximation)
            np.testing.assert_array_equal(alone.documents, ranked.documents)
            np.testing.assert_allclose(alone.scores, ranked.scores, rtol=1e-5)  # queries were encoded in another batch


def test_centroids_find_nearly_all_that_exact_search_does(
    index: MultiVectorIndex, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = index.search(texts(collection), 10)
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
        near = index.search(texts(collection), 10, centroids.NAME)
        recalls[probe] = np.mean([np.isin(a.documents, b.documents).mean() for a, b in zip(exact, near, strict=True)])
        shares[probe] = sum(scored) / len(QUERIES) / len(index.ends)
        print(f"{probe} centroids: recall@10 {recalls[probe]:.3f}, {shares[probe]:.0%} of the texts are scored")
    assert list(recalls.values()) == sorted(recalls.values())
    assert recalls[default] > 0.95
    assert shares[1] < 0.6
    assert recalls[10_000] == shares[10_000] == 1


def test_any_model_of_several_vectors_has_an_index(collection: Collection, tmp_path: Path) -> None:
    trained = tokens_run(collection)
    index = build(trained, collection, tmp_path / "index", "float32")
    scores = (
        ranker_of(trained, collection)
        .system(Texts(collection, QUERIES, list(range(120))))
        .scores(slice(0, len(QUERIES)))
    )
    for ranked, row in zip(index.search(texts(collection), 120), scores, strict=True):
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


def test_vectors_that_half_precision_cannot_hold_are_refused(collection: Collection, tmp_path: Path) -> None:
    trained = tokens_run(collection)
    with torch.no_grad():
        trained.model.trunk.get_input_embeddings().weight.mul_(1e7)  # type: ignore[operator, union-attr]
    with pytest.raises(InputError, match=r"000000.npy as float16: the model's embeddings are not finite"):
        MultiVectorIndex.build(ranker_of(trained, collection), tmp_path / "index")


def test_missing_lists_are_made_again_and_damage_is_refused(index: MultiVectorIndex, tmp_path: Path) -> None:
    folder = shutil.copytree(index.folder.directory, tmp_path / "index")
    opened, expected = MultiVectorIndex.open(Folder.open(folder), index.ranker), tree(folder)
    lists = folder / "centroids"
    (lists / "000002.npy").unlink()
    before = (lists / "000001.npy").stat().st_mtime_ns
    with pytest.raises(InputError, match=r"000002.npy: no such file; trainer.index --approximate centroids makes it"):
        opened.require(centroids.NAME)
    opened.prepare(centroids.NAME)
    assert tree(folder) == expected
    assert (lists / "000001.npy").stat().st_mtime_ns == before
    np.save(lists / "centroids.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(InputError, match="belongs to another index; remove it and make it again"):
        opened.require(centroids.NAME)
    np.save(folder / "ends" / "000001.npy", np.arange(25))
    with pytest.raises(InputError, match="damaged .its number of vectors"):
        MultiVectorIndex.open(Folder.open(folder), index.ranker)
