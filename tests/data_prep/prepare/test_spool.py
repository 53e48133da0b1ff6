import json
import random
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import save_array
from deepsiam.data_prep.prepare import spool, writing
from deepsiam.data_prep.prepare.spool import KEYS
from deepsiam.data_prep.prepare.writing import Selection, ShardPlan, is_held_out
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

KEY = st.integers(0, KEYS - 1) | st.sampled_from([0, 1, KEYS // 2, KEYS - 1])  # some keys are frequent
RECORDS = st.lists(st.tuples(KEY, st.binary(max_size=6)), max_size=12)
Records = list[tuple[int, bytes]]


@given(st.lists(RECORDS, max_size=4), KEY, st.data())
def test_a_range_has_the_records_with_keys_in_it(files: list[Records], low: int, data: st.DataObject) -> None:
    high = data.draw(st.integers(low + 1, KEYS))
    expected = [record for records in files for record in sorted(records) if low <= record[0] < high]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(files))]
        for path, records in zip(paths, files, strict=True):
            spool.write(path, {}, records)
        assert list(spool.gather(paths, low, high)) == expected
        sizes: Counter[int] = Counter()
        for key, record in expected:
            sizes[key] += len(record)
        assert +spool.sizes(paths, low, high) == +sizes


@given(
    st.lists(st.lists(st.tuples(KEY, st.tuples(KEY, KEY)), max_size=6), max_size=3),
    st.integers(0, KEYS - 1),
    st.data(),
    st.randoms(use_true_random=False),
)
def test_bands_and_their_keys(
    files: list[list[tuple[int, tuple[int, int]]]], low: int, data: st.DataObject, rng: random.Random
) -> None:
    high = data.draw(st.integers(low + 1, KEYS))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(files) + 1)]
        for path, rows in zip(paths, files, strict=False):
            written = []
            for some in (rng.sample(rows, len(rows)), rows):  # their order changes no byte
                bands = np.array([bands for _, bands in some], np.uint64) if some else None
                spool.write(path, {}, [(key, str(bands).encode()) for key, bands in some], bands)
                written.append(path.read_bytes())
            assert written[0] == written[1]
        spool.write(paths[-1], {}, [(5, b"no bands")])
        found = spool.bands(paths, low, high)
    expected = [(band, key) for rows in files for key, bands in rows for band in bands]
    expected = [(band, key) for band, key in expected if low <= band < high and band != spool.NO_BAND]
    assert sorted(found.tolist()) == sorted(expected)
    assert found.dtype == spool.RECORD


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
    for read in (spool.gather, spool.sizes, spool.bands, lambda paths, *_: spool.about(*paths)):
        with pytest.raises(InputError, match=f"{path}: cannot read: No such file or directory"):
            list(read([path], 0, KEYS))


SPREAD_KEY = st.integers(0, 8).map(lambda number: number * (spool.KEYS // 9) + 5)
GROUP = st.sampled_from(["", *map(str, range(6))])
TEXT_RECORDS = st.lists(st.tuples(SPREAD_KEY, st.sampled_from("abc"), st.sampled_from(["x", "y"]), GROUP), max_size=20)
SOME_KEYS = st.sets(SPREAD_KEY, max_size=4)
Record = tuple[int, str, str, str]  # key, id, text, group


def content(record: Record) -> bytes:
    _, name, text, group = record
    return json.dumps([name, [text], [], 0, group, ""]).encode()


def saved(path: Path, keys: set[int]) -> str:
    save_array(path, np.array(sorted(keys), np.uint64))
    return str(path)


def naive(
    records: list[Record], keep: bool, share: float, near: set[int], elsewhere: set[int], held_out: bool
) -> tuple[list[Record], Counter[str]]:
    sides = {record: is_held_out(record[3] or record[1], share) for record in records}
    training = {key for key, *rest in records if not sides[(key, *rest)]}
    dropped: Counter[str] = Counter()
    kept = []
    before = -1
    for record in sorted(records, key=lambda record: (record[0], content(record))):
        key = record[0]
        if sides[record] != held_out:
            continue
        if key in elsewhere:
            dropped["elsewhere"] += 1
        elif (held_out and key in training) or (key == before and not keep):
            dropped["same_text"] += 1
        elif key in near:
            dropped["near_duplicate"] += 1
        else:
            kept.append(record)
        before = key
    return kept, dropped


@given(TEXT_RECORDS, st.booleans(), st.sampled_from([0.0, 0.5]), SOME_KEYS, SOME_KEYS, st.integers(1, 3))
def test_the_kept_documents_are_in_order_and_the_others_are_counted(
    records: list[Record], keep: bool, share: float, near: set[int], elsewhere: set[int], ranges: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        folder = Path(name)
        for file in range(2):
            spool.write(folder / f"spool{file}", {}, [(record[0], content(record)) for record in records[file::2]])
        files = (folder / "spool0", folder / "spool1")
        removed = [saved(folder / f"{number}.npy", keys) for number, keys in enumerate((near, elsewhere))]
        selection = Selection(files, keep, share, *removed)
        ends = spool.edges(ranges)
        for held_out in (False, True):
            dropped: Counter[str] = Counter()
            kept = [
                (key, document.id, document.segments[0], document.group)
                for low, high in pairwise(ends)
                for key, document in writing.kept(selection, low, high, held_out, dropped)
            ]
            assert (kept, dropped) == naive(records, keep, share, near, elsewhere, held_out)


def test_the_held_out_share_is_met_and_a_larger_share_holds_out_more() -> None:
    groups = [f"text/{number}" for number in range(20_000)]
    for share in (0.0, 0.01, 0.3):
        number = sum(is_held_out(group, share) for group in groups)
        assert abs(number - share * len(groups)) <= 4 * (share * len(groups)) ** 0.5
    few, more = ({group for group in groups if is_held_out(group, share)} for share in (0.1, 0.2))
    assert few < more


@pytest.mark.parametrize(
    ("documents", "size", "wanted", "expected"),
    [
        *((0, 0, None, 1), (15, 1000, None, 1), (160, 1000, None, 10), (1_000_000, 1000, None, 256)),
        *((100, 640 << 20, None, 10), (100, 641 << 20, None, 11), (10**9, 1 << 40, None, 1 << 14)),
        *((10**9, 1 << 40, 3, 3), (1, 1, 9, 9)),
    ],
)
def test_the_number_of_shards_suits_the_size(documents: int, size: int, wanted: int | None, expected: int) -> None:
    assert writing.shards_of(documents, size, wanted) == expected


def test_documents_are_tokenised_in_batches_as_one_by_one(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the fox", "", "a dog sleeps", "[MASK] jumps"]
    documents = [
        (number, Document(f"d{number}", tuple(texts[: number % 5]), (0,) if number % 5 else (), number % 2))
        for number in range(12)
    ]
    whole = list(writing.tokenized(iter(documents), small.splitting(False), True))  # "[MASK]" is text in any shard
    monkeypatch.setattr(tokenizer, "BATCH", 5)
    for (key, document), one, other in zip(documents, whole, writing.tokenized(documents, small, True), strict=True):
        assert (one.id, one.key, one.headings, one.context) == (document.id, key, document.headings, document.context)
        expected = [small.encode([segment])[0].tolist() for segment in document.segments]
        assert [ids.tolist() for ids in one.segments] == [ids.tolist() for ids in other.segments] == expected


def test_a_shard_without_documents_has_no_file(small: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    document = writing.tokenized([(1, Document("d", ("the fox",)))], small, True)
    shards = [ShardPlan("shards", number, 2) for number in range(2)]
    writing.write_documents(tmp_path, shards[0], document, small, 100, Counter(odd=2))
    writing.write_documents(tmp_path, shards[1], [], small, 100, Counter(odd=1, few=1))
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["shard-000000.tar"]
    assert all(writing.finished(tmp_path, shard).exists() for shard in shards)
    (entry,), dropped = writing.entries(tmp_path, shards)
    assert (entry.name, entry.documents) == ("shard-000000.tar", 1)
    assert dropped == {"odd": 3, "few": 1}
