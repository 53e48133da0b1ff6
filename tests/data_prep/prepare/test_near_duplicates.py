import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.prepare import near_duplicates, spool
from deepsiam.data_prep.prepare.minhash import RECORD
from deepsiam.data_prep.prepare.near_duplicates import BandRange, Result

EDGE = spool.KEYS // 2
BAND = st.sampled_from([1, 2, 3, EDGE - 1, EDGE, EDGE + 1, spool.KEYS - 1])
DOCUMENTS = st.lists(st.tuples(st.integers(0, 20), st.tuples(BAND, BAND)), max_size=10)
Documents = list[tuple[int, tuple[int, int]]]


@pytest.fixture(autouse=True)
def two_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        near_duplicates,
        "ranges",
        lambda size: [BandRange(0, 0, EDGE), BandRange(1, EDGE, spool.KEYS)],
    )


def search(folder: Path, spooled: list[Path], parts: list[Path], others: list[Path]) -> Result:
    folder.mkdir()
    ranges = near_duplicates.ranges(0)
    compare = near_duplicates.comparer(spooled, parts, others, folder)
    for bounds in ranges[::-1]:
        compare(bounds)
        assert near_duplicates.pairs_file(folder, bounds).exists()
    return near_duplicates.collect(folder, ranges)


def spooled(path: Path, documents: Documents) -> Path:
    bands = np.array([bands for _, bands in documents], np.uint64) if documents else None
    spool.write(path, {}, [(key, b"") for key, _ in documents], bands)
    return path


def naive(documents: Documents, others: Documents) -> tuple[set[int], set[int]]:
    """Return the keys that share a band with a smaller key, and those that share one with `others`."""
    known = {band for _, bands in others for band in bands}
    surpassed = {
        key for key, bands in documents if any(other < key and set(bands) & set(their) for other, their in documents)
    }
    return surpassed, {key for key, bands in documents if known & set(bands)}


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), DOCUMENTS)
def test_a_document_that_shares_a_band_with_a_smaller_key_is_dropped(files: list[Documents], others: Documents) -> None:
    every = [document for documents in files for document in documents]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [spooled(folder / str(number), documents) for number, documents in enumerate(files)]
        other = search(folder / "other", [spooled(folder / "others", others)], [], [])
        result = search(folder / "found", paths, [], [other.pairs])
        surpassed, elsewhere = naive(every, others)
        assert np.load(result.keys).tolist() == sorted(surpassed)
        assert np.load(result.elsewhere).tolist() == sorted(elsewhere)
        pairs = np.load(result.pairs)
        assert pairs.dtype == RECORD
        assert pairs.tolist() == sorted({(band, key) for key, bands in every for band in bands})


@given(st.lists(DOCUMENTS, min_size=2, max_size=3))
def test_the_pairs_of_parts_give_the_result_of_all_documents(files: list[Documents]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [spooled(folder / str(number), documents) for number, documents in enumerate(files)]
        whole = search(folder / "whole", paths, [], [])
        parts = [search(folder / f"part {number}", [path], [], []).pairs for number, path in enumerate(paths)]
        merged = search(folder / "merged", [], parts, [])
        for one, other in zip(whole, merged, strict=True):
            assert one.read_bytes() == other.read_bytes()


def test_a_finished_search_is_not_repeated(tmp_path: Path) -> None:
    result = search(tmp_path / "found", [spooled(tmp_path / "a", [(1, (2, 3)), (4, (3, 9))])], [], [])
    for path in (tmp_path / "found").glob("*-0*"):
        path.unlink()
    assert near_duplicates.collect(tmp_path / "found", near_duplicates.ranges(0)) == result
    assert np.load(result.keys).tolist() == [4]


def test_ranges_are_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for size, number in [
        (0, 1),
        (1, 1),
        (near_duplicates.RANGE_BYTES, 1),
        (near_duplicates.RANGE_BYTES + 1, 2),
        (1 << 30, 8),
    ]:
        ranges = near_duplicates.ranges(size)
        assert [bounds.number for bounds in ranges] == list(range(number))
        assert (ranges[0].low, ranges[-1].high) == (0, spool.KEYS)
        assert all(one.high == other.low for one, other in pairwise(ranges))


def test_the_size_is_that_of_all_pairs(tmp_path: Path) -> None:
    files = [
        spooled(tmp_path / "a", [(1, (2, 3))] * 5),
        spooled(tmp_path / "b", []),
        spooled(tmp_path / "c", [(1, (2, 3))]),
    ]
    assert near_duplicates.size_of(files) == 6 * 2 * 16
