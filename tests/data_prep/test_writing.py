import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import near_pass, spool, writing
from data_prep.document import Document
from data_prep.tokenizer import Tokenizer
from data_prep.writing import Selection, Shard, is_held_out

KEY = st.integers(0, 8).map(lambda number: number * (spool.KEYS // 9) + 5)
RECORDS = st.lists(st.tuples(KEY, st.sampled_from("abc"), st.sampled_from(["x", "y"])), max_size=20)
SOME_KEYS = st.sets(KEY, max_size=4)


def record(name: str, text: str) -> bytes:
    return json.dumps([name, [text], [], 0]).encode()


def saved(path: Path, keys: set[int]) -> str:
    near_pass.save(path, np.array(sorted(keys), np.uint64))
    return str(path)


def naive(
    records: list[tuple[int, str, str]], keep: bool, share: float, near: set[int], elsewhere: set[int], held_out: bool
) -> tuple[list[tuple[int, str, str]], Counter[str]]:
    dropped: Counter[str] = Counter()
    kept = []
    before = -1
    for key, name, text in sorted(records):
        if is_held_out(key, share) != held_out:
            continue
        if key in elsewhere:
            dropped["elsewhere"] += 1
        elif key == before and not keep:
            dropped["same_text"] += 1
        elif key in near:
            dropped["near_duplicate"] += 1
        else:
            kept.append((key, name, text))
        before = key
    return kept, dropped


@given(RECORDS, st.booleans(), st.sampled_from([0.0, 0.5]), SOME_KEYS, SOME_KEYS, st.integers(1, 3))
def test_what_stays_is_in_order_and_the_rest_is_counted(
    records: list[tuple[int, str, str]], keep: bool, share: float, near: set[int], elsewhere: set[int], ranges: int
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        folder = Path(name)
        for file in range(2):
            content = [(key, record(*document)) for key, *document in records[file::2]]
            spool.write(folder / f"spool{file}", {}, content)
        files = (folder / "spool0", folder / "spool1")
        removed = [saved(folder / f"{number}.npy", keys) for number, keys in enumerate((near, elsewhere))]
        selection = Selection(files, keep, share, *removed)
        ends = spool.edges(ranges)
        for held_out in (False, True):
            dropped: Counter[str] = Counter()
            found = [
                one
                for low, high in zip(ends, ends[1:], strict=False)
                for one in writing.kept(selection, low, high, held_out, dropped)
            ]
            expected = naive(records, keep, share, near, elsewhere, held_out)
            assert [(key, document.id, document.segments[0]) for key, document in found] == expected[0]
            assert dropped == expected[1]


def test_the_held_out_share_is_met_and_independent_of_the_order() -> None:
    rng = np.random.default_rng(0)
    keys = np.sort(rng.integers(0, spool.KEYS, 20_000, np.uint64, endpoint=False)).tolist()
    for share in (0.0, 0.01, 0.3):
        chosen = [is_held_out(key, share) for key in keys]
        assert abs(sum(chosen) - share * len(keys)) <= 4 * (share * len(keys)) ** 0.5
        assert abs(sum(chosen[:10_000]) - share * 10_000) <= 4 * (share * 10_000) ** 0.5
    few, more = ({key for key in keys if is_held_out(key, share)} for share in (0.1, 0.2))
    assert few < more


def test_the_number_of_shards_suits_the_size() -> None:
    mebibyte = 1 << 20
    for documents, size, wanted, expected in [
        (0, 0, None, 1),
        (15, 1000, None, 1),
        (160, 1000, None, 10),
        (1_000_000, 1000, None, 256),
        (100, 640 * mebibyte, None, 10),
        (100, 641 * mebibyte, None, 11),
        (10**9, 1 << 40, None, 1 << 14),
        (10**9, 1 << 40, 3, 3),
        (1, 1, 9, 9),
    ]:
        assert writing.shards_of(documents, size, wanted) == expected


@given(st.lists(st.integers(0, spool.KEYS - 1)), st.integers(0, spool.KEYS - 1))
def test_a_key_is_found_in_a_sorted_array(keys: list[int], key: int) -> None:
    array = np.array(sorted(keys), np.uint64)
    assert writing.contains(array, key) == (key in keys)
    assert all(writing.contains(array, one) for one in keys)


def test_the_shards_of_a_split_share_all_keys() -> None:
    ranges = [Shard("shards", number, 7).range for number in range(7)]
    assert (ranges[0][0], ranges[-1][1]) == (0, spool.KEYS)
    assert all(one[1] == other[0] for one, other in zip(ranges, ranges[1:], strict=False))


def test_documents_are_tokenised_in_batches_as_one_by_one(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the fox", "", "a dog sleeps", "[MASK] jumps"]
    documents = [
        (number, Document(f"d{number}", tuple(texts[: number % 5]), (0,) if number % 5 else (), number % 2))
        for number in range(12)
    ]
    whole = list(writing.tokenized(iter(documents), small))
    monkeypatch.setattr(writing, "BATCH", 5)
    for (key, document), one, other in zip(documents, whole, writing.tokenized(documents, small), strict=True):
        assert (one.id, one.key, one.headings, one.context) == (document.id, key, document.headings, document.context)
        expected = [small.encode([segment])[0].tolist() for segment in document.segments]
        assert [ids.tolist() for ids in one.segments] == [ids.tolist() for ids in other.segments] == expected


def test_a_shard_without_documents_has_no_file(small: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    document = writing.tokenized([(1, Document("d", ("the fox",)))], small)
    shards = [Shard("shards", number, 2) for number in range(2)]
    writing.write_documents(tmp_path, shards[0], document, small, 100, Counter(odd=2))
    writing.write_documents(tmp_path, shards[1], [], small, 100, Counter(odd=1, few=1))
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["shard-000000.tar"]
    assert all(writing.finished(tmp_path, shard).exists() for shard in shards)
    (entry,), dropped = writing.entries(tmp_path, shards)
    assert (entry.name, entry.documents) == ("shard-000000.tar", 1)
    assert dropped == {"odd": 3, "few": 1}
