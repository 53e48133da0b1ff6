"""A dense index: block-wise search against a plain product, building on several ranks and after a stop, refusals."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes import writer
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.folder import Folder
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.system import Embedded, Texts
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests.trainer.ranking.indexes.five_blocks import small_blocks
from tests.trainer.ranking.indexes.shares import tree
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}


@pytest.fixture(scope="module")
def trained(copies: Collection, tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    folder = tmp_path_factory.mktemp("run")
    return load_trained(write_run(folder / "one", copies.directory / "tokenizer.json", name="siamese", **LENGTHS))


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Iterator[None]:
    with small_blocks():
        yield


def plain(trained: TrainedModel, collection: Collection, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """The vectors of the queries and of the documents, each in order."""
    texts = Texts(collection, list(range(len(collection.queries))), list(range(len(collection.corpus))))
    embedded = ranker_of(trained, collection).system(texts)
    assert isinstance(embedded, Embedded)
    return embedded.queries, embedded.documents.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_search_is_that_of_all_vectors_in_one_matrix(
    trained: TrainedModel, copies: Collection, tmp_path: Path, dtype: str
) -> None:
    index = DenseIndex.build(ranker_of(trained, copies), tmp_path / "index", dtype=dtype)
    assert len(index.vectors) == 90
    assert [len(array) for array in index.vectors.arrays] == [20, 20, 20, 20, 10]
    assert index.vectors.arrays[0].dtype == dtype
    np.testing.assert_array_equal(index.documents.rows[90:], np.arange(30))
    queries, documents = plain(trained, copies, dtype)
    scores = queries.astype(np.float64) @ documents.astype(np.float64).T
    scores[:, 90:] = scores[:, :30]  # copies have exactly equal scores
    for k in (1, 7, 500):
        found = index.search_vectors(queries, k)
        order = np.argsort(-scores.astype(np.float32), axis=1, kind="stable")[:, :k]
        rows = np.stack([ranked.scores for ranked in found])
        np.testing.assert_allclose(rows, np.take_along_axis(scores, order, axis=1), rtol=1e-4)
        if dtype == "float32":  # vectors from other batches differ in the last bits: almost all positions are equal
            assert (np.stack([ranked.documents for ranked in found]) == order).mean() > 0.99


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


def test_vectors_that_are_not_finite_are_refused(copies: Collection, trained: TrainedModel, tmp_path: Path) -> None:
    model = load_trained(trained.checkpoint)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.fill_(np.nan)
    with pytest.raises(InputError, match=r"encode 000000.npy: the model's embeddings are not finite"):
        DenseIndex.build(ranker_of(model, copies), tmp_path / "index")
    assert not list((tmp_path / "index" / "blocks").iterdir())


def test_a_whole_index_is_opened_without_reading_the_texts(
    trained: TrainedModel, copies: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = DenseIndex.build(ranker_of(trained, copies), tmp_path / "index")
    before = tree(tmp_path / "index")
    monkeypatch.setattr(writer, "distinct", lambda *_: pytest.fail("the texts are read"))
    again = DenseIndex.build(ranker_of(trained, copies), tmp_path / "index")
    assert str(again) == str(index) == "120 documents of 90 different texts, 32 x float32 each"
    assert tree(tmp_path / "index") == before


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_queries_have_the_precision_of_the_documents(
    trained: TrainedModel, copies: Collection, tmp_path: Path, precision: str
) -> None:
    loaded = load_trained(trained.checkpoint)  # another model: it is turned into this precision
    DenseIndex.build(ranker_of(loaded, copies, precision), tmp_path / "index")
    ranker = open_index(tmp_path / "index").ranker
    assert isinstance(ranker, ModelRanker)
    assert ranker.precision == precision


def test_a_vector_that_is_not_a_number_is_refused(trained: TrainedModel, copies: Collection, tmp_path: Path) -> None:
    DenseIndex.build(ranker_of(trained, copies), tmp_path / "index")
    queries, _ = plain(trained, copies)
    block = sorted((tmp_path / "index" / "blocks").glob("*.npy"))[1]
    for damage in (np.nan, np.inf):
        vectors = np.load(block)
        vectors[3, 0] = damage
        np.save(block, vectors)
        index = DenseIndex.open(Folder.open(tmp_path / "index"), ranker_of(trained, copies))
        with pytest.raises(InputError, match="a score is not a number"):
            index.search_vectors(np.abs(queries[:2]), 5)
