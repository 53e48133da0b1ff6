import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import spool
from deepsiam.data_prep.prepare.spool import KEYS

KEY = st.integers(0, KEYS - 1) | st.sampled_from([0, 1, KEYS // 2, KEYS - 1])  # some keys are frequent
RECORDS = st.lists(st.tuples(KEY, st.binary(max_size=6)), max_size=12)
Records = list[tuple[int, bytes]]


def written(folder: str, files: list[Records]) -> list[Path]:
    paths = [Path(folder) / str(number) for number in range(len(files))]
    for path, records in zip(paths, files, strict=True):
        spool.write(path, {}, records)
    return paths


@given(st.lists(RECORDS, max_size=4), KEY, st.data())
def test_a_range_has_the_records_of_all_files_with_keys_in_it(
    files: list[Records], low: int, data: st.DataObject
) -> None:
    high = data.draw(st.integers(low + 1, KEYS))
    expected = [record for records in files for record in sorted(records) if low <= record[0] < high]
    with tempfile.TemporaryDirectory() as folder:
        paths = written(folder, files)
        assert list(spool.gather(paths, low, high)) == expected
        sizes: Counter[int] = Counter()
        for key, record in expected:
            sizes[key] += len(record)
        assert +spool.sizes(paths, low, high) == +sizes


@given(st.lists(RECORDS, max_size=4), st.integers(1, 5))
def test_ranges_have_every_record_once(files: list[Records], number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = written(folder, files)
        ends = spool.edges(number)
        read = [record for low, high in zip(ends, ends[1:], strict=False) for record in spool.gather(paths, low, high)]
    assert sorted(read) == sorted(record for records in files for record in records)


@given(RECORDS, st.randoms(use_true_random=False))
def test_the_order_of_the_records_changes_no_byte(records: Records, rng: random.Random) -> None:
    bands = np.array([[key & 7, len(record)] for key, record in records], np.uint64).reshape(-1, 2)
    shuffled = rng.sample(range(len(records)), len(records))
    with tempfile.TemporaryDirectory() as folder:
        spool.write(Path(folder) / "a", {}, records, bands)
        spool.write(Path(folder) / "b", {}, [records[index] for index in shuffled], bands[shuffled])
        assert (Path(folder) / "a").read_bytes() == (Path(folder) / "b").read_bytes()


@given(
    st.lists(st.lists(st.tuples(KEY, st.tuples(KEY, KEY)), max_size=6), max_size=3), st.integers(0, KEYS - 1), st.data()
)
def test_the_bands_of_a_range_come_with_their_keys(
    files: list[list[tuple[int, tuple[int, int]]]], low: int, data: st.DataObject
) -> None:
    high = data.draw(st.integers(low + 1, KEYS))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(files) + 1)]
        for path, rows in zip(paths, files, strict=False):
            bands = np.array([bands for _, bands in rows], np.uint64) if rows else None
            spool.write(path, {}, [(key, b"record") for key, _ in rows], bands)
        spool.write(paths[-1], {}, [(5, b"no bands")])
        bands, keys = spool.bands(paths, low, high)
    expected = [(band, key) for rows in files for key, bands in rows for band in bands]
    expected = [(band, key) for band, key in expected if low <= band < high and band != spool.NO_BAND]
    assert sorted(zip(bands.tolist(), keys.tolist(), strict=True)) == sorted(expected)
    assert bands.dtype == keys.dtype == np.uint64


def test_the_first_line_of_a_file_describes_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    bands = np.array([[1, 2, 3], [1, 2, spool.NO_BAND]], np.uint64)
    spool.write(path, {"stages": [1], "named": ["line 3\nä"]}, [(7, b"abc"), (1, b"de")], bands)
    assert spool.about(path) == {"stages": [1], "named": ["line 3\nä"], "records": 2, "bytes": 5, "bands": 5}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    size = len(json.dumps(spool.about(path))) + 1 + 2 * 8 * (2 + 5) + 5
    assert path.stat().st_size == size


@given(st.integers(1, 1000))
def test_edges_are_equal_ranges_of_all_keys(number: int) -> None:
    ends = spool.edges(number)
    assert (ends[0], ends[-1], len(ends)) == (0, KEYS, number + 1)
    lengths = {high - low for low, high in zip(ends, ends[1:], strict=False)}
    assert max(lengths) - min(lengths) <= 1


def test_the_key_of_a_text_never_changes() -> None:
    assert spool.key_of("") == int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "little")
    assert spool.key_of("ä") != spool.key_of("a")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    with pytest.raises(InputError, match=f"{path}: cannot read: No such file or directory"):
        spool.about(path)
    for read in (spool.gather, spool.sizes, spool.bands):
        with pytest.raises(InputError, match=f"{path}: cannot read: No such file or directory"):
            list(read([path], 0, KEYS))
