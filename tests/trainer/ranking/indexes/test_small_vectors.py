"""A byte or a bit a number, then fp16: codes and search against plain loops and the library."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import index as command
from deepsiam.trainer.ranking.indexes import small_vectors
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.indexes.small_vectors import CODES, IndexCodes, bits_of, bytes_of, nearest_bits, ranges_of
from deepsiam.trainer.ranking.retrieval.search import Ranked
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.ranking.indexes.five_blocks import build, expect_ties_in_order, queries, recall, small_blocks, tree
from tests.trainer.ranking.retrieval.fakes import assert_same

ALL = pytest.mark.parametrize("dtype", CODES)


def vectors(seed: int, number: int, width: int) -> np.ndarray:
    """Vectors around 16 directions, fp16 [number, width]."""
    rng = np.random.default_rng(seed)
    around = np.random.default_rng(99).standard_normal((16, width))[rng.integers(16, size=number)]
    return (around + rng.standard_normal((number, width)) * 0.5).astype(np.float16)


def coded(dtype: str, texts: np.ndarray, sizes: list[int]) -> tuple[IndexCodes, Blocks]:
    """The codes and the vectors of texts in blocks of these sizes."""
    parts = np.split(texts, np.cumsum(sizes))
    ranges = ranges_of(texts[::3]) if dtype == "int8" else None
    codes = [bits_of(part) if ranges is None else bytes_of(part, ranges) for part in parts]
    return IndexCodes(Blocks(codes), ranges), Blocks(parts)


@pytest.mark.parametrize("width", [1, 5, 64, 100])
def test_codes_are_those_of_sentence_transformers(width: int) -> None:
    """With the same ranges; numbers beyond them get the nearest step, and a dimension without a range none."""
    from sentence_transformers.util import quantize_embeddings

    texts = vectors(0, 300, width).astype(np.float32)
    texts[:, -1] = 0.25
    ranges = ranges_of(texts[:150])
    np.testing.assert_array_equal(bytes_of(texts, ranges), quantize_embeddings(texts, "int8", ranges=ranges))
    packed = bits_of(texts).view(np.uint8)
    np.testing.assert_array_equal(packed[:, : -(-width // 8)], quantize_embeddings(texts, "ubinary"))
    assert not packed[:, -(-width // 8) :].any()


@ALL
@pytest.mark.parametrize("k", [1, 7, 60, 500])
def test_search_is_that_of_loops_over_all_texts(dtype: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_vectors, "CORPUS_BLOCK", 50)
    texts, asked = vectors(1, 230, 20), vectors(2, 9, 20).astype(np.float32)
    texts[100:110] = texts[3]  # ties
    codes, stored = coded(dtype, texts, [100, 1, 0, 90])
    found = codes.search(asked, stored, k)
    for query, ranked in zip(asked.astype(np.float64), found, strict=True):
        if codes.ranges is None:
            near = -((texts > 0) != (query > 0)).sum(axis=1)
        else:
            steps = (codes.ranges[1] - codes.ranges[0]) / np.float32(255)
            every = np.concatenate(codes.codes.arrays).astype(np.float64)
            near = np.float32(every @ (query.astype(np.float32) * steps))
        candidates = np.sort(np.argsort(-near, kind="stable")[: 4 * k])
        scores = (texts[candidates].astype(np.float64) @ query).astype(np.float32)
        order = np.argsort(-scores, kind="stable")[:k]
        assert ranked.documents.tolist() == candidates[order].tolist()
        np.testing.assert_allclose(ranked.scores, scores[order], rtol=1e-6)


def test_scoring_again_finds_what_codes_alone_miss() -> None:
    texts, asked = vectors(3, 4000, 48), vectors(4, 40, 48).astype(np.float32)
    exact = np.argsort(-(asked @ texts.astype(np.float32).T), axis=1, kind="stable")[:, :10]
    found: dict[str, list[Ranked]] = {}
    for dtype in CODES:
        codes, stored = coded(dtype, texts, [1500, 1500])
        found[dtype] = codes.search(asked, stored, 10)
    found["bits alone"] = nearest_bits(bits_of(asked), codes.codes, 10)
    recalls = {name: recall([Ranked(row, row) for row in exact], rankings) for name, rankings in found.items()}
    assert recalls["int8"] > 0.99
    assert recalls["int8"] > recalls["binary"] > recalls["bits alone"] + 0.1


def test_bits_are_counted_without_numpy_2_too() -> None:
    words = np.random.default_rng(0).integers(0, 2**63, (3, 50), dtype=np.uint64)
    words[0, 0], words[0, 1] = 0, 2**64 - 1
    expected = [[int(word).bit_count() for word in row] for row in words]
    assert small_vectors.count_bits(words).tolist() == small_vectors._count_bits(words).tolist() == expected


@pytest.fixture(scope="module")
def made(kinds: Kinds, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DenseIndex]:
    """An index of each dtype; the last 30 of the 120 documents are copies of the first 30."""
    with small_blocks():
        halves = build("dense", kinds.rankers["dense"], tmp_path_factory.mktemp("made") / "float16", "float16")
    return {"float16": halves, **{dtype: kinds.made[dtype] for dtype in CODES}}  # type: ignore[dict-item]


@ALL
def test_an_index_has_fp16_vectors_and_their_codes(made: dict[str, DenseIndex], dtype: str) -> None:
    index, folder = made[dtype], made[dtype].folder.directory
    assert tree(folder / "blocks") == tree(made["float16"].folder.directory / "blocks")
    assert index.codes
    every = index.vectors[np.arange(90)]
    ranges = index.codes.ranges
    assert (ranges is None) == (dtype == "binary")
    expected = bits_of(every) if ranges is None else bytes_of(every, ranges)
    np.testing.assert_array_equal(index.codes.codes[np.arange(90)], expected)
    if ranges is not None:
        whole = ranges_of(every)
        assert (ranges[0] >= whole[0]).all()
        assert (ranges[1] <= whole[1]).all()
        assert (ranges != whole).any()  # they are of a sample
    size = {"int8": 90 * 32, "binary": 90 * 8}[dtype]
    told = f"90 different texts, 32 x float16 each (5,760 bytes), searched by {dtype} first ({size:,} bytes)"
    assert str(index) == f"120 documents of {told}"
    assert set(index.folder.manifest["sha256"]) == set(tree(folder)) - {"manifest.json"}
    index.folder.verify()


@ALL
def test_scores_and_ties_are_those_of_exact_search(made: dict[str, DenseIndex], copies: Collection, dtype: str) -> None:
    exact = made["float16"].search_share(queries(copies), 120)
    index = made[dtype]
    for k in (10, 30, 120):
        for ranked, whole in zip(index.search_share(queries(copies), k), exact, strict=True):
            assert len(ranked.documents) == k
            score_of = dict(zip(whole.documents.tolist(), whole.scores.tolist(), strict=True))
            np.testing.assert_allclose([score_of[i] for i in ranked.documents.tolist()], ranked.scores, rtol=1e-6)
            expect_ties_in_order(ranked)
    salted = index.search_tokens([copies.queries.tokens(3)], 5, salts=np.array([7], np.uint32))
    alone = made["float16"].search_tokens([copies.queries.tokens(3)], 5, salts=np.array([7], np.uint32))
    assert salted[0].documents.tolist() == alone[0].documents.tolist()


def test_the_command_tells_bytes_and_recall(
    kinds: Kinds, made: dict[str, DenseIndex], copies: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = made["int8"].folder.directory, str(kinds.runs["dense"][0])
    command.main([run, f"--collection={copies.directory}", f"--out={folder}", "--dtype=int8"])
    line, recall = capsys.readouterr().out.splitlines()
    assert line == f"{folder}: complete already: {made['int8']}"
    words = (
        r"\d+\.\d% of exact search's first 10 and 100\.0% of exact search's first 100, for 64 queries of the collection"
    )
    assert re.fullmatch(f"{folder}: finds {words}", recall)
    assert made["float16"].measure() is None


def test_cut_vectors_have_codes_too(kinds: Kinds, tmp_path: Path) -> None:
    ranker = kinds.rankers["dense"].cut(7)
    index = DenseIndex.build(ranker, tmp_path / "i", dtype="int8")
    assert index.codes
    assert index.codes.codes.width == 7
    assert open_index(tmp_path / "i").ranker.dimensions == 7
    embedded = ranker.queries.embeddings(map(ranker.collection.queries.tokens, range(12)))
    there = index.codes.search(embedded, index.vectors, 9, torch.device("cpu"))  # as on a device
    assert_same(index.codes.search(embedded, index.vectors, 9), there)
