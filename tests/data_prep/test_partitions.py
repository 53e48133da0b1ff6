import random
import tracemalloc
from pathlib import Path

import pytest

from data_prep import partitions
from data_prep.errors import InputError
from data_prep.partitions import Partitions
from data_prep.record import Dropped
from data_prep.threads import Utterance


def utterances(threads: int, each: int) -> list[Utterance]:
    rows = [
        Utterance(f"t3_{t}", n, f"t1_{t}x{n}", f"t3_{t}", 0, n, f"utterance “{n}” of {t}", "")
        for t in range(threads)
        for n in range(each)
    ]
    random.Random(1).shuffle(rows)
    return rows


def grouped(rows: list[Utterance], folder: Path) -> list[list[Utterance] | Dropped]:
    folder.mkdir()
    filled = Partitions(folder)
    for row in rows:
        filled.add(row)
    result = list(filled)
    assert list(folder.iterdir()) == []
    return result


def test_threads_come_whole_and_in_the_same_order_however_they_are_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = utterances(300, 5)
    undivided = grouped(rows, tmp_path / "a")
    assert sorted(row for thread in undivided if isinstance(thread, list) for row in thread) == sorted(rows)
    assert [len({row.thread for row in thread}) for thread in undivided if isinstance(thread, list)] == [1] * 300
    monkeypatch.setattr(partitions, "BUFFER", 500)
    for digits, largest in [(1, 1 << 20), (1, 1000), (2, 1000), (3, 1000)]:
        monkeypatch.setattr(partitions, "DIGITS", digits)
        monkeypatch.setattr(partitions, "LARGEST", largest)
        assert grouped(rows, tmp_path / f"{digits}-{largest}") == undivided


def test_a_thread_that_is_too_large_is_dropped_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "LARGEST", 2000)
    monkeypatch.setattr(partitions, "DIGITS", 1)
    large = [Utterance("t3_large", n, f"t1_{n}", "t3_large", 0, n, "word " * 10, "") for n in range(50)]
    small = utterances(100, 4)
    found = grouped(small + large, tmp_path / "a")
    assert found.count(Dropped("thread too large")) == 50
    assert [thread for thread in found if isinstance(thread, list)] == grouped(small, tmp_path / "b")


def test_memory_is_bounded_by_a_file_not_by_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "LARGEST", 1 << 13)
    monkeypatch.setattr(partitions, "BUFFER", 1 << 13)
    filled = Partitions(tmp_path)
    tracemalloc.start()
    try:
        for n in range(10_000):
            filled.add(Utterance(f"t3_{n // 20}", n, f"t1_{n}", f"t3_{n // 20}", 0, n, "words " * 10, ""))
        size = sum(filled.sizes.values())
        assert sum(len(thread) for thread in filled if isinstance(thread, list)) == 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 1_000_000
    assert peak < 400_000


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    filled = Partitions(tmp_path / "gone")
    filled.add(utterances(1, 1)[0])
    with pytest.raises(InputError, match="gone.*cannot write: No such file"):
        list(filled)
