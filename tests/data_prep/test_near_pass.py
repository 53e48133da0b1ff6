import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep import near_pass, spool
from data_prep.near_duplicates import RECORD
from data_prep.near_pass import Found

EDGE = spool.KEYS // 2
BAND = st.sampled_from([1, 2, 3, EDGE - 1, EDGE, EDGE + 1, spool.KEYS - 1])
DOCUMENTS = st.lists(st.tuples(st.integers(0, 20), st.tuples(BAND, BAND)), max_size=10)
Documents = list[tuple[int, tuple[int, int]]]


@pytest.fixture(autouse=True)
def two_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(
        near_pass, "ranges", lambda size: [near_pass.Range(0, 0, EDGE), near_pass.Range(1, EDGE, spool.KEYS)]
    )


def search(folder: Path, spooled: list[Path], parts: list[Path], others: list[Path]) -> Found:
    folder.mkdir()
    wanted = near_pass.ranges(0)
    compare = near_pass.comparer(spooled, parts, others, folder)
    for one in wanted[::-1]:
        compare(one)
        assert near_pass.pairs_file(folder, one).exists()
    return near_pass.collect(folder, wanted)


def spooled(path: Path, documents: Documents) -> Path:
    bands = np.array([bands for _, bands in documents], np.uint64) if documents else None
    spool.write(path, {}, [(key, b"") for key, _ in documents], bands)
    return path


def naive(documents: Documents, others: Documents) -> tuple[set[int], set[int]]:
    """Those one of whose bands a document with a smaller key has, and those that share one with `others`."""
    known = {band for _, bands in others for band in bands}
    surpassed = {
        key for key, bands in documents if any(other < key and set(bands) & set(their) for other, their in documents)
    }
    return surpassed, {key for key, bands in documents if known & set(bands)}


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), DOCUMENTS)
def test_a_document_goes_where_one_of_its_bands_is_another_s(files: list[Documents], others: Documents) -> None:
    every = [document for documents in files for document in documents]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [spooled(folder / str(number), documents) for number, documents in enumerate(files)]
        other = search(folder / "other", [spooled(folder / "others", others)], [], [])
        found = search(folder / "found", paths, [], [other.pairs])
        surpassed, elsewhere = naive(every, others)
        assert np.load(found.keys).tolist() == sorted(surpassed)
        assert np.load(found.elsewhere).tolist() == sorted(elsewhere)
        pairs = np.load(found.pairs)
        assert pairs.dtype == RECORD
        assert pairs.tolist() == sorted({(band, key) for key, bands in every for band in bands})


@settings(max_examples=30)
@given(st.lists(DOCUMENTS, min_size=2, max_size=3))
def test_the_pairs_of_parts_give_what_all_documents_give(files: list[Documents]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [spooled(folder / str(number), documents) for number, documents in enumerate(files)]
        whole = search(folder / "whole", paths, [], [])
        parts = [search(folder / f"part {number}", [path], [], []).pairs for number, path in enumerate(paths)]
        merged = search(folder / "merged", [], parts, [])
        for one, other in zip(whole, merged, strict=True):
            assert one.read_bytes() == other.read_bytes()


def test_what_was_collected_is_not_collected_again(tmp_path: Path) -> None:
    found = search(tmp_path / "found", [spooled(tmp_path / "a", [(1, (2, 3)), (4, (3, 9))])], [], [])
    for path in (tmp_path / "found").glob("*-0*"):
        path.unlink()
    assert near_pass.collect(tmp_path / "found", near_pass.ranges(0)) == found
    assert np.load(found.keys).tolist() == [4]


def test_ranges_are_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for size, number in [(0, 1), (1, 1), (near_pass.RANGE_BYTES, 1), (near_pass.RANGE_BYTES + 1, 2), (1 << 30, 8)]:
        found = near_pass.ranges(size)
        assert [one.number for one in found] == list(range(number))
        assert (found[0].low, found[-1].high) == (0, spool.KEYS)
        assert all(one.high == other.low for one, other in zip(found, found[1:], strict=False))


def test_the_size_is_that_of_all_pairs(tmp_path: Path) -> None:
    files = [
        spooled(tmp_path / "a", [(1, (2, 3))] * 5),
        spooled(tmp_path / "b", []),
        spooled(tmp_path / "c", [(1, (2, 3))]),
    ]
    assert near_pass.size_of(files) == 6 * 2 * 16
