"""Vectors in a few bits: k-means, the codec against plain loops, an index of them."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes import centroids, kmeans, residual
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.multi_vector import MultiVectorIndex
from deepsiam.trainer.ranking.indexes.residual import BITS, Codec, Residuals, ResidualVectors, fit, unit
from deepsiam.trainer.ranking.rankers.multi_vector import MultiVectorRanker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.ranking.indexes.five_blocks import build, expect_ties_in_order, queries, recall, small_blocks
from tests.trainer.ranking.retrieval.fakes import tokens_run

ALL = pytest.mark.parametrize("bits", [1, 2, 4])


def unit_vectors(seed: int, number: int, width: int) -> np.ndarray:
    """Return vectors of length 1 around 16 directions, fp32 [number, width]."""
    rng = np.random.default_rng(seed)
    around = np.random.default_rng(99).standard_normal((16, width))[rng.integers(16, size=number)]
    return unit((around + rng.standard_normal((number, width)) * 0.4).astype(np.float32))


@ALL
@pytest.mark.parametrize("width", [1, 3, 16, 21])
def test_a_vector_is_stored_and_read_as_by_a_plain_loop(bits: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit_vectors(0, 60, width)
    codec = fit(unit_vectors(1, 400, width), unit_vectors(2, 50, width), 8, bits)
    monkeypatch.setattr(residual, "AT_ONCE", 7)
    rows = codec.encode(vectors)
    assert rows.shape == (60, codec.row) == (60, 4 + -(-width * bits // 8))
    decoded = codec.decode(rows)
    assert decoded.dtype == np.float32
    for vector, row, read in zip(vectors, rows, decoded, strict=True):
        code = int.from_bytes(row[:4].tobytes(), "little")
        distances = np.linalg.norm(codec.centroids - vector, axis=1)
        assert distances[code] == pytest.approx(distances.min(), abs=1e-5)
        stream = "".join(f"{byte:08b}"[::-1] for byte in row[4:].tolist())  # the lowest bit first
        buckets = [int(stream[i * bits : (i + 1) * bits][::-1], 2) for i in range(width)]
        assert buckets == [sum(x > cut for cut in codec.cutoffs) for x in vector - codec.centroids[code]]
        plain = codec.centroids[code].astype(np.float64) + codec.values[buckets]
        np.testing.assert_allclose(read, plain / np.linalg.norm(plain), atol=1e-6)


@ALL
def test_buckets_have_equal_shares_and_the_values_are_their_medians(bits: int) -> None:
    held_out = unit_vectors(3, 500, 12)
    codec = fit(unit_vectors(4, 2000, 12), held_out, 32, bits)
    distances = np.linalg.norm(held_out[:, None] - codec.centroids, axis=2)
    residuals = (held_out - codec.centroids[distances.argmin(axis=1)]).ravel()
    buckets = np.searchsorted(codec.cutoffs, residuals)
    shares = np.bincount(buckets, minlength=2**bits) / len(residuals)
    np.testing.assert_allclose(shares, 2.0**-bits, atol=2e-3)
    medians = [np.median(residuals[buckets == i]) for i in range(2**bits)]
    np.testing.assert_allclose(codec.values, medians, atol=2e-3)


@pytest.mark.parametrize("number", [1, 3, 4, 9])
def test_few_vectors_have_fewer_centroids(number: int) -> None:
    vectors = unit_vectors(7, number, 5)
    codec = fit(vectors, vectors, 64, 4)
    assert len(codec.centroids) == max(1, 2 ** int(np.log2(max(1, number // 4))))
    np.testing.assert_allclose(np.linalg.norm(codec.decode(codec.encode(vectors)), axis=1), 1, atol=1e-6)
    assert [residual.centroids_for(n) for n in (1, 100, 10_000, 1_000_000)] == [16, 128, 1024, 8192]


@pytest.fixture(scope="module")
def made(kinds: Kinds, tmp_path_factory: pytest.TempPathFactory) -> dict[str, MultiVectorIndex]:
    """An index of each dtype; the last 30 of the 120 documents are copies of the first 30."""
    folder, ranker = tmp_path_factory.mktemp("made"), kinds.rankers["multi_vector"]
    with small_blocks():
        more = {dtype: build("multi_vector", ranker, folder / dtype, dtype) for dtype in ("residual1", "residual4")}
    every = {"float16": kinds.made["multi_vector"], "residual2": kinds.made["residual2"], **more}
    return {dtype: every[dtype] for dtype in ("float16", *BITS)}  # type: ignore[misc]


def test_the_sample_is_some_of_the_different_texts(kinds: Kinds, copies: Collection, tmp_path: Path) -> None:
    ranker = kinds.rankers["multi_vector"]
    assert isinstance(ranker, MultiVectorRanker)
    writer = ResidualVectors(ranker, tmp_path / "i", "residual2")
    assert not writer.begin()
    sample = writer._sample()
    assert set(sample.tolist()) < set(writer.first_documents.tolist()) == set(range(90))
    assert (np.diff(sample) > 0).all()
    vectors = len(ranker.documents.vectors(map(copies.corpus.tokens, range(90))).flat)
    wanted = 2 * residual.centroids_for(vectors)
    assert 0.8 < len(sample) / 90 * vectors / wanted < 1.2


def test_an_index_stores_what_its_codec_makes_of_fp16(made: dict[str, MultiVectorIndex], copies: Collection) -> None:
    exact = made["float16"].vectors
    every = np.arange(len(exact))
    distances, recalls, told = [], [], []
    nearest = made["float16"].search_share(queries(copies), 10)
    for dtype, bits in BITS.items():
        index = made[dtype]
        assert isinstance(index.vectors, Residuals)
        codec = index.vectors.codec
        assert (codec.bits, codec.row) == (bits, 4 + -(-18 * bits // 8))
        np.testing.assert_array_equal(index.vectors.rows[every], codec.encode(exact[every]))
        decoded = index.vectors[every]
        for some in (every[5:9], every[7:8], every[::-3]):
            np.testing.assert_array_equal(index.vectors[some], decoded[some])
        recalls.append(recall(nearest, index.search_share(queries(copies), 10)))
        told.append(index.vectors.recall)
        distances.append(np.linalg.norm(decoded - exact[every], axis=1).mean())
        assert f"vectors of 18 x {bits} bits ({codec.row} bytes each), " in str(index)
        assert not (index.folder.directory / "sample").exists()
    assert distances == sorted(distances, reverse=True)
    assert recalls == sorted(recalls)
    assert recalls[-1] > 0.8
    assert told == sorted(told)
    assert 0.3 < told[0] <= told[-1] <= 1


@pytest.mark.parametrize("dtype", BITS)
def test_search_ranks_by_the_decoded_vectors(made: dict[str, MultiVectorIndex], copies: Collection, dtype: str) -> None:
    index = made[dtype]
    encoded = index.ranker.queries.vectors(copies.tokenizer.encode(queries(copies)))
    decoded = np.split(index.vectors[np.arange(len(index.vectors))].astype(np.float64), index.ends[:-1])
    for k in (1, 10, 200):
        for number, ranked in enumerate(index.search_share(queries(copies), k)):
            query = encoded.of(encoded.rows[number]).astype(np.float64)
            of_texts = np.array([(query @ vectors.T).max(axis=1).sum() for vectors in decoded], np.float32)
            scores = of_texts[index.documents.rows]
            np.testing.assert_allclose(ranked.scores, np.sort(scores)[::-1][:k], rtol=1e-6)
            np.testing.assert_allclose(ranked.scores, scores[ranked.documents], rtol=1e-6)
            expect_ties_in_order(ranked)


def test_the_lists_are_those_of_the_stored_centroids(made: dict[str, MultiVectorIndex], copies: Collection) -> None:
    index = made["residual2"]
    assert isinstance(index.vectors, Residuals)
    assert not (index.folder.directory / "centroids" / "centroids.npy").exists()
    of_centroids, lists = centroids.load(index.folder, 18, np.diff(index.bounds).tolist())
    np.testing.assert_array_equal(of_centroids, index.vectors.codec.centroids)
    codes = np.concatenate([index.vectors.nearest(i) for i in range(len(lists))])
    starts = [0, *index.ends.tolist()]
    for first, pairs in zip(index.bounds.tolist(), lists, strict=False):
        for text in range(3):
            own = codes[starts[first + text] : starts[first + text + 1]]
            assert sorted(pairs[0, pairs[1] == text].tolist()) == sorted(set(own.tolist()))
    exact, near = (index.search_share(queries(copies), 10, approximation) for approximation in (None, centroids.NAME))
    assert recall(exact, near) > 0.8


def test_vectors_of_other_lengths_are_refused_before_anything_is_written(copies: Collection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--dtype residual1: needs vectors of length 1, .* choose float16"):
        MultiVectorIndex.build(ranker_of(tokens_run(copies), copies), tmp_path / "i", dtype="residual1")
    assert not (tmp_path / "i").exists()


def test_decodes_by_batches(
    made: dict[str, MultiVectorIndex], copies: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    original = Codec.decode
    monkeypatch.setattr(Codec, "decode", lambda codec, rows: (read.append(len(rows)), original(codec, rows))[1])
    monkeypatch.setattr("deepsiam.trainer.ranking.retrieval.system.DOCUMENT_VECTORS", 50)
    index = made["residual2"]
    index.search_share(queries(copies), 5)
    assert max(read) <= 50
    assert sum(read) == len(index.vectors)


def test_the_centroids_are_the_means_of_the_vectors_near_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((10, 6)).astype(np.float32) * 5
    vectors = middles[rng.integers(10, size=3000)] + rng.standard_normal((3000, 6)).astype(np.float32) * 0.1
    of_centroids = centroids.train(Blocks([vectors[:700], vectors[700:]]))
    assert of_centroids.shape == (round(8 * 3000**0.5), 6)
    distances = np.linalg.norm(vectors[:, None] - of_centroids, axis=2)
    for products in (kmeans.PRODUCTS, 1):
        monkeypatch.setattr(kmeans, "PRODUCTS", products)
        belongs = kmeans.nearest(vectors[:50], of_centroids)
        np.testing.assert_allclose(distances[np.arange(50), belongs], distances[:50].min(axis=1), atol=1e-3)
    assert distances.min(axis=1).mean() < 0.25  # within each of the ten clusters, about 0.24 from the middle
    before = np.array([[0.0, 0.0], [10.0, 0.0], [99.0, 0.0]], np.float32)
    points = np.array([[1, 1], [3, 1], [9, 4], [2, 1]], np.float32)
    means = kmeans.means(points, kmeans.nearest(points, before), before)
    np.testing.assert_array_equal(means, [[2, 1], [9, 4], [99, 0]])
