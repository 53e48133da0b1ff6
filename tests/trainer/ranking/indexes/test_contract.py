"""What every kind of index must do, for each kind of the registry."""

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes import centroids, residual, small_vectors, writer
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.registry import KINDS, open_index
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval import shared
from deepsiam.trainer.ranking.retrieval.search import merged, packed
from deepsiam.trainer.ranking.retrieval.system import Texts
from tests import toy
from tests.trainer.ranking.indexes.conftest import Kinds
from tests.trainer.ranking.indexes.five_blocks import (
    CODED,
    NAMES,
    build,
    build_named,
    expect_ties_in_order,
    found,
    queries,
    tree,
)
from tests.trainer.ranking.retrieval.fakes import assert_same

ALL = pytest.mark.parametrize("kind", KINDS)
WAYS = pytest.mark.parametrize(
    ("name", "approximation"), [(name, None) for name in NAMES] + [("multi_vector", centroids.NAME)]
)
STOPS = {  # after how many files
    "dense": (0, 3, 5),
    "int8": (2, 5, 6, 8, 11),
    "binary": (5, 8),
    "multi_vector": (1, 3, 10),
    "residual2": (1, 5, 7, 9, 12, 16),
    "sparse": (2, 15, 20),
}


@ALL
def test_its_files_are_plain_arrays_and_json_and_the_same_every_time(
    kinds: Kinds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = kinds.made[kind].folder
    expected = tree(folder.directory)
    build(kind, kinds.rankers[kind], tmp_path / "again")
    assert tree(tmp_path / "again") == expected
    for name, content in expected.items():
        if name.endswith(".npy"):
            np.load(tmp_path / "again" / name, allow_pickle=False)
        else:
            json.loads(content)
    assert set(folder.manifest["sha256"]) | {"manifest.json"} >= {n for n in expected if not n.startswith("centroids")}
    times = {path: path.stat().st_mtime_ns for path in folder.directory.rglob("*")}
    monkeypatch.setattr(writer, "distinct", lambda *_: pytest.fail("the texts are read"))
    again = build(kind, kinds.rankers[kind], folder.directory)  # a complete one is only opened
    assert str(again) == str(kinds.made[kind])
    assert {path: path.stat().st_mtime_ns for path in folder.directory.rglob("*")} == times


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [
        ("bm25", None, 0),
        ("dense", "float32", 1e-5),
        ("dense", "float16", 2e-3),
        ("multi_vector", "float32", 1e-5),
        ("multi_vector", "float16", 8 * 2.0**-11),  # of 8 vectors of length 1
        ("sparse", "float32", 1e-5),
        ("sparse", "float16", 1e-2),
    ],
)
def test_search_is_the_ranking_of_evaluation(
    kinds: Kinds, copies: Collection, tmp_path: Path, kind: str, dtype: str | None, tolerance: float
) -> None:
    ranker, numbers = kinds.rankers[kind], list(range(0, 120, 9))
    index = KINDS[kind].build(ranker, tmp_path / "i", dtype=dtype)
    system = ranker.system(Texts(copies, numbers, list(range(120))))
    texts, expected = [copies.queries.text(i) for i in numbers], system.scores(slice(0, len(numbers)))
    for k in (1, 7, 500):
        for ranked, scores, row in zip(index.search_share(texts, k), expected, system.rank(k), strict=True):
            assert len(set(ranked.documents.tolist())) == len(row.documents)
            np.testing.assert_allclose(ranked.scores, scores[ranked.documents], atol=tolerance)
            np.testing.assert_allclose(ranked.scores, row.scores, atol=tolerance)
            expect_ties_in_order(ranked)
            if dtype != "float16":
                apart = np.abs(np.diff(row.scores, prepend=np.inf, append=-np.inf)) > tolerance
                clear = apart[:-1] & apart[1:]  # no other score is within rounding error
                np.testing.assert_array_equal(ranked.documents[clear], row.documents[clear])


@WAYS
@pytest.mark.parametrize(("ranks", "sizes"), [(2, (1, 500)), (16, (9,))])
def test_shares_of_ranks_merge_to_one_ranking(
    kinds: Kinds, copies: Collection, name: str, approximation: str | None, ranks: int, sizes: tuple[int, ...]
) -> None:
    index, texts = kinds.made[name], queries(copies)
    for k in sizes:
        shares = [index.search_share(texts, k, approximation, rank, ranks) for rank in range(ranks)]
        together = merged(np.concatenate([packed(found, k) for found in shares], axis=1), k)
        assert_same(together, index.search_share(texts, k, approximation))  # to the last bit
        if name not in ("bm25", "int8", "binary"):  # queries are shared out; there are only five blocks
            assert all(len(ranked.documents) == 0 for found in shares[5:] for ranked in found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_keep_bytes(kinds: Kinds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ranks: int) -> None:
    barrier = threading.Barrier(ranks)
    for module in (shared, writer, residual, small_vectors, centroids):
        monkeypatch.setattr(module, "wait_for", lambda ranks: barrier.wait(60) if ranks > 1 else None)
    with ThreadPoolExecutor(ranks) as threads:
        done = [threads.submit(build_named, name, kinds.rankers, tmp_path / "i", rank, ranks) for rank in range(ranks)]
        for of_rank in done:
            of_rank.result()
    assert tree(tmp_path / "i") == tree(kinds.made[name].folder.directory)


@pytest.mark.parametrize(("name", "files"), [(name, files) for name in STOPS for files in STOPS[name]])
def test_a_build_that_stops_anywhere_goes_on_to_the_same_bytes(
    kinds: Kinds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: int
) -> None:
    saved: list[Path] = []

    def stops(file: Path, array: np.ndarray, original: Callable[..., None] = writer.save_array) -> None:
        if len(saved) == files:
            raise KeyboardInterrupt
        saved.append(file)
        original(file, array)

    with monkeypatch.context() as patched:
        for module in (writer, residual, small_vectors):
            patched.setattr(module, "save_array", stops)
        with pytest.raises(KeyboardInterrupt):
            build_named(name, kinds.rankers, tmp_path / "i")
    with pytest.raises(InputError, match="an unfinished index: run trainer.index again, it goes on"):
        IndexFolder.open(tmp_path / "i")
    written = {file: file.stat().st_mtime_ns for file in (tmp_path / "i" / "blocks").glob("*.npy")}
    build_named(name, kinds.rankers, tmp_path / "i")
    assert tree(tmp_path / "i") == tree(kinds.made[name].folder.directory)
    assert {file: file.stat().st_mtime_ns for file in written} == written  # a block is encoded once


@pytest.mark.slow  # two real ranks
def test_two_real_ranks_make_the_same_files_and_find_the_same(kinds: Kinds, tmp_path: Path) -> None:
    collection = kinds.made["bm25"].collection.directory
    indexes = {kind: (kind, str(kinds.runs[kind][0]) if kind in kinds.runs else "bm25", None) for kind in KINDS}
    indexes |= {dtype: (CODED[dtype], str(kinds.runs[CODED[dtype]][0]), dtype) for dtype in ("int8", "residual2")}
    (tmp_path / "indexes.json").write_text(json.dumps(indexes))
    done = toy.launch(2, "tests.trainer.ranking.indexes.five_blocks", collection, tmp_path / "indexes.json")
    assert done.returncode == 0, done.stderr
    for name in indexes:
        index, files = kinds.made[name], tree(tmp_path / name)
        assert files == tree(index.folder.directory), name
        assert name == "bm25" or sum(file.startswith("blocks/") for file in files) == 5
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), found(index, 9), name)
        assert (tmp_path / f"{name}.txt").read_text() == str(index.measure())


@WAYS
def test_copies_tie_in_their_order(kinds: Kinds, copies: Collection, name: str, approximation: str | None) -> None:
    for ranked in kinds.made[name].search_share(queries(copies), 120, approximation):
        place = {document: rank for rank, document in enumerate(ranked.documents.tolist())}
        for i in range(30):
            assert (i in place) == (90 + i in place)
            if i in place:
                assert place[i] < place[90 + i]
                assert ranked.scores[place[i]] == ranked.scores[place[90 + i]]


@ALL
def test_a_folder_of_another_collection_model_or_kind_or_of_nobody_is_left_alone(
    kinds: Kinds, copies: Collection, opened: Collection, tmp_path: Path, kind: str
) -> None:
    index = shutil.copytree(kinds.made[kind].folder.directory, tmp_path / "index")
    before = tree(index)
    others = {"collection": Bm25Ranker(opened) if kind == "bm25" else open_ranker(kinds.runs[kind][0], opened)}
    if kind != "bm25":
        others["model"] = open_ranker(kinds.runs[kind][1], copies)
    for what, ranker in others.items():
        with pytest.raises(InputError, match=f"holds an index with another {what}: name another folder"):
            build(kind, ranker, index)
    of_other_kind = next(name for name in KINDS if name != kind)
    with pytest.raises(InputError, match="holds an index with another kind"):
        build(of_other_kind, kinds.rankers[of_other_kind], index)
    if kind != "bm25":
        with pytest.raises(InputError, match="holds an index with another --dtype"):
            build(kind, kinds.rankers[kind], index, [*KINDS[kind].WRITERS][1])
    assert tree(index) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(InputError, match="holds something that is not an index"):
        build(kind, kinds.rankers[kind], tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def read(kind: str, ranker: Ranker, folder: Path) -> None:
    """Open an index, also for its approximate search."""
    opened = KINDS[kind].open(IndexFolder.open(folder), ranker)
    if kind == "multi_vector":
        opened.require(centroids.NAME)


@ALL
@pytest.mark.parametrize("content", [b"none", None], ids=["damaged", "missing"])
def test_a_damaged_or_missing_file_is_refused(kinds: Kinds, tmp_path: Path, kind: str, content: bytes | None) -> None:
    index = shutil.copytree(kinds.made[kind].folder.directory, tmp_path / "index")
    for name, sound in tree(index).items():
        if content is None:
            (index / name).unlink()
        else:
            (index / name).write_bytes(content)
        with pytest.raises(InputError, match="damaged|not an index|no such file"):
            read(kind, kinds.rankers[kind], index)
        (index / name).write_bytes(sound)
    read(kind, kinds.rankers[kind], index)
    manifest = json.loads((index / "manifest.json").read_text())
    for changed in ({"kind": next(other for other in KINDS if other != kind)}, {"precision": "fp16"}):
        (index / "manifest.json").write_text(json.dumps({**manifest, **changed}))
        with pytest.raises(InputError, match="damaged|is not the model"):
            open_index(index)
    (index / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="damaged, or not an index's"):
        read(kind, kinds.rankers[kind], index)
