"""The batches of an input; the counts of each stage; and --rejected, which lists what is left out, with its reason."""

import errno
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import batches, rejected, tally, writing
from deepsiam.data_prep.prepare.batches import MAX_BYTES, MIN_BYTES, Batch, Part
from deepsiam.data_prep.prepare.tally import CHECKED_FROM, Tally, Totals
from deepsiam.data_prep.sources.source import Choices, File, Piece, Source
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents, source_of

HALF = MIN_BYTES // 2
ALL = Part()


def _pieces(file: File, _: Choices) -> Iterator[Piece]:
    """Yield a piece for each number in the file: the number is its size in bytes, a minus stands for damage."""
    with open(file.path, "rb") as stream:
        sizes = stream.read(1 << 12).rstrip(b"\0").split()
    for number, size in enumerate(sizes):
        if size == b"-":
            raise InputError(f"{file.path}: damaged")
        yield Piece(f"piece {number}", int(size), number)


NUMBERS = Source("numbers", lambda paths: iter(()), _pieces, lambda *_: ())


def numbers_file(folder: Path, name: str, sizes: Sequence[object], size: int = 0) -> File:
    """Write a file of pieces; if `size` is given, extend it to a sparse file of that many bytes."""
    path = folder / name
    path.write_text(" ".join(map(str, sizes)))
    if size:
        os.truncate(path, size)
    os.utime(path, ns=(0, 0))
    return File(path, name)


def cut(files: Sequence[File], part: Part = ALL, what: str = "") -> list[Batch]:
    return list(batches.batches(NUMBERS, files, {}, part, what))


def pieces(cut_batches: Sequence[Batch]) -> list[tuple[str, int]]:
    return [(file.name, piece.content) for batch in cut_batches for file, piece in batch.pieces]


@given(st.lists(st.lists(st.integers(0, MIN_BYTES), max_size=6), min_size=1, max_size=8), st.integers(1, 4))
def test_parts_are_disjoint_and_together_all_in_order(sizes: list[list[int]], number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [numbers_file(Path(folder), str(index), row) for index, row in enumerate(sizes)]
        expected = [(str(index), ordinal) for index, row in enumerate(sizes) for ordinal in range(len(row))]
        assert pieces(cut(files)) == expected
        parts = [pieces(cut(files, Part(one, number))) for one in range(1, number + 1)]
        assert sorted(piece for part in parts for piece in part) == expected
        assert max(map(len, parts)) - min(map(len, parts)) <= len(files)


def test_a_batch_closes_with_the_piece_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = numbers_file(tmp_path, "a", [HALF, HALF, 3 * MIN_BYTES, 1, 1])
    assert [len(batch.pieces) for batch in cut([file])] == [2, 1, 2]
    monkeypatch.setattr(batches, "MAX_PIECES", 2)
    assert [len(batch.pieces) for batch in cut([numbers_file(tmp_path, "b", [1] * 5)])] == [2, 2, 1]


def test_batches_grow_with_the_input_up_to_a_bound(tmp_path: Path) -> None:
    for total, expected in [(1, MIN_BYTES), (100 * MIN_BYTES, 2 * MIN_BYTES), (1 << 40, MAX_BYTES)]:
        cut_batches = cut([numbers_file(tmp_path, str(total), [MIN_BYTES] * 40, total)])
        assert len(cut_batches[0].pieces) == expected // MIN_BYTES


def test_small_files_share_batches_and_large_ones_do_not(tmp_path: Path) -> None:
    small = [numbers_file(tmp_path, f"small {number}", [100, 100], 100) for number in range(20)]
    large = numbers_file(tmp_path, "large", [100], MIN_BYTES + 1)
    names = [{file.name for file, _ in batch.pieces} for batch in cut([*small[:10], large, *small[10:]])]
    assert {"large"} in names
    assert len(names) < 8


def test_the_name_of_a_batch_depends_on_its_content_and_options(tmp_path: Path) -> None:
    file = numbers_file(tmp_path, "a", [1, 2])
    names = [cut([file])[0].name, cut([file], what="other")[0].name, cut([file], Part(1, 2))[0].name]
    os.utime(file.path, ns=(0, 1))
    names.append(cut([file])[0].name)
    names.append(cut([numbers_file(tmp_path, "b", [1, 2])])[0].name)
    names.append(cut([numbers_file(tmp_path, "a", [1, 2], 9)])[0].name)
    assert len(set(names)) == len(names)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert cut([numbers_file(elsewhere, "b", [1, 2])])[0].name == names[4]


@pytest.mark.parametrize(
    "sizes", [[3 * MIN_BYTES] * 40, [HALF] * 150, [5 * MIN_BYTES, 1000] * 40], ids=["large", "small", "mixed"]
)
def test_a_file_left_out_or_changed_changes_few_batches(tmp_path: Path, sizes: list[int]) -> None:
    files = [numbers_file(tmp_path, f"file {number}", [size // 60] * 60, size) for number, size in enumerate(sizes)]
    before = {batch.name for batch in cut(files)}
    for index in (0, 7, len(files) - 1):
        left = [file for file in files if file is not files[index]]
        assert len({batch.name for batch in cut(left)} - before) <= 0.1 * len(before)
        os.utime(files[index].path, ns=(0, index + 1))
        assert len({batch.name for batch in cut(files)} - before) <= 0.1 * len(before)
        os.utime(files[index].path, ns=(0, 0))


def test_sound_pieces_before_damage_are_yielded(tmp_path: Path) -> None:
    files = [numbers_file(tmp_path, name, sizes) for name, sizes in (("a", [1, 2]), ("b", [3, "-", 4]), ("c", [5]))]
    cut_batches: list[Batch] = []
    with pytest.raises(InputError, match="b: damaged"):
        cut_batches.extend(batches.batches(NUMBERS, files, {}, ALL, ""))
    assert pieces(cut_batches) == [("a", 0), ("a", 1), ("b", 0)]
    with pytest.raises(InputError, match="gone: cannot read: No such file"):
        cut([File(tmp_path / "gone", "gone")])


def test_the_reported_progress_grows_to_the_size_of_the_input(tmp_path: Path) -> None:
    files = [numbers_file(tmp_path, str(number), [MIN_BYTES] * 3, MIN_BYTES + number) for number in range(1, 4)]
    read = [batch.bytes_read for batch in cut(files)]
    assert read == sorted(read)
    assert 2 * MIN_BYTES <= read[-1] <= 3 * MIN_BYTES + 6


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "-1/2", "1/2/3", "a/b", "1/", "1.0/2"])
def test_a_malformed_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a part such as 3/16"):
        Part.parse(text)


def stage(name: str, came: int, **dropped: int) -> dict[str, Any]:
    out = came - sum(dropped.values())
    return {"name": name, "parameters": {"of": name}, "in": came, "out": out, "dropped": dropped}


def about(read: int, *named: str, bad: int = 0, **dropped: int) -> dict[str, Any]:
    stages = [stage("read", read, **({"bad": bad} if bad else {})), stage("length", read - bad, **dropped)]
    return {"bad": bad, "named": list(named), "stages": stages}


def test_a_stage_counts_in_out_and_dropped_and_names_what_it_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_NAMES", 3)
    tasks = []
    for names in ("db", "ca"):
        counted = Tally("length", {"min_words": 3})
        counted.came, counted.went = 4, 1
        for reason in ("too short", "odd", "too short"):
            counted.drop(reason)
        counted.guess("cp1252", *names, number=2)
        tasks.append([counted.record()])
    dropped = {"dropped": {"odd": 1, "too_short": 2}}
    record = {"name": "length", "parameters": {"min_words": 3}, "in": 4, "out": 1} | dropped
    assert tasks[0] == [record | {"guessed": {"cp1252": 2}, "guessed_for": {"cp1252": ["b", "d"]}}]
    total, other = tally.add([*tasks, [stage("length", 2), stage("cut", 7)]])
    assert (total["in"], total["out"], total["dropped"]) == (10, 4, {"odd": 2, "too_short": 4})
    assert (total["guessed"], total["guessed_for"]) == ({"cp1252": 4}, {"cp1252": ["a", "b", "c"]})
    assert other == stage("cut", 7)
    assert tally.add(tasks) == tally.add(tasks[::-1])
    assert tally.dropped([stage("a", 9, odd=1, few=2), stage("b", 6, odd=3)]) == {"few": 2, "odd": 4}


def test_sentences_left_out_are_counted_and_the_rarest_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_NAMES", 2)
    counted = Tally("read", {})
    counted.sentences.update({"fox": 3, "dog": 1, "cat": 2, "ape": 1})
    twice = tally.add([[counted.record()], [counted.record()], [stage("read", 1)]])
    assert twice[0]["sentences"] == {"ape": 2, "cat": 4, "dog": 2, "fox": 6}
    short = tally.shortened(twice)
    assert short[0]["sentences"] == {"cat": 4, "fox": 6, tally.OTHER_NAMES: 4}
    assert tally.shortened(tally.add([short, short]))[0]["sentences"] == {"cat": 8, "fox": 12, tally.OTHER_NAMES: 8}
    assert "sentences" not in tally.shortened([stage("read", 1)])[0]


def test_the_share_of_bad_records_decides(capsys: Capture) -> None:
    Totals(0).check()  # no records are not too many bad ones
    totals = Totals(0.1)
    totals.add(about(10, "a: line 3: no", bad=1))
    totals.check()
    totals.add(about(9))
    totals.add(about(1, "b: line 1: no", bad=1))
    totals.check()
    totals.add(about(9, "b: line 2: no", bad=1))
    with pytest.raises(InputError, match=r"3 of 29 records are bad, more than --max-bad 0.1, as a: line 3: no; b:"):
        totals.check()
    early = Totals(0.1)
    early.add(about(CHECKED_FROM - 1, bad=CHECKED_FROM // 2))
    with pytest.raises(InputError, match="records are bad"):
        early.add(about(1))


def test_the_first_bad_records_are_named_without_control_characters(capsys: Capture) -> None:
    totals = Totals(1)
    totals.add(about(9, "one\x1b[2J\nline", "two", bad=2))
    totals.add(about(9, *map(str, range(5)), bad=5))
    named = ("one\\x1b[2J line", "two", "0", "1", "2")
    assert capsys.readouterr().err.splitlines() == [f"bad record: {name}" for name in named]


def test_the_note_has_the_commonest_reasons() -> None:
    totals = Totals(0)
    totals.add(about(5000, odd=1200, few=30, rare=1, some=7))
    assert totals.note() == "1,200 odd, 30 few, 7 some"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def command(tmp_path: Path) -> tuple[object, ...]:
    """Read texts of which some are left out, for every reason."""
    some = raw.texts(30)
    file = raw.write_jsonl(tmp_path / "a.jsonl", [*some, some[3].upper(), "Two words.", " ", some[4], "Tiny."])
    with open(file, "a") as more:
        more.write("not JSON\n")
    return "jsonl", file, "--min-words", 5, "--max-bad", 0.5


@pytest.mark.parametrize(("workers", "text_only"), [(3, []), (1, ["--text-only"])], ids=["shards", "text"])
def test_all_that_is_left_out_is_written_with_its_reason_after_an_interruption_too(
    command: tuple[object, ...],
    workers: int,
    text_only: list[str],
    tmp_path: Path,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = *command, *text_only
    rejecting = *command, "--out", tmp_path / "out", "--rejected", tmp_path / "no.jsonl"
    if not text_only:
        with monkeypatch.context() as patch:
            patch.setattr(writing.packing, "write_shard", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(SystemExit):
                raw.run(*rejecting)
        assert not (tmp_path / "no.jsonl").exists()
    raw.run(*rejecting, workers=workers)
    found = lines(tmp_path / "no.jsonl")
    place = [(line["stage"], line["reason"], (line.get("where") or line["id"]).split(" (")[0]) for line in found]
    assert [each for each in place if each[0] != "write"] == [
        ("length", "too_short", "jsonl/a.jsonl/32"),
        ("read", "empty", "jsonl/a.jsonl: line 33"),
        ("length", "too_short", "jsonl/a.jsonl/35"),
        ("read", "bad", "jsonl/a.jsonl: line 36: not JSON"),
    ]
    same = [line for line in found if line["stage"] == "write"]
    assert {line["reason"] for line in same} == {"same_text"}
    assert {line["id"] for line in same} < {f"jsonl/a.jsonl/{number}" for number in (4, 5, 31, 34)}
    copied = [text.replace(". ", ".\n").lower() for text in raw.texts(30)[3:5]]
    assert sorted(line["text"].lower() for line in same) == sorted(copied)
    raw.run(*command, "--out", tmp_path / "without")
    assert contents(tmp_path / "out") == contents(tmp_path / "without")


def test_the_lines_agree_with_the_counts_of_the_manifest(tmp_path: Path) -> None:
    threads = [raw.texts(4, number, 1) for number in range(5)]
    dumps = raw.write_reddit(tmp_path / "dumps", [*threads, ["Alone and unanswered for ever."], threads[0]])
    raw.run("reddit", dumps, "--out", tmp_path / "out", "--language", "any", "--rejected", tmp_path / "no.jsonl")
    counted = Counter(line["reason"] for line in lines(tmp_path / "no.jsonl"))
    assert counted == Counter(source_of(tmp_path / "out")["counts"]["dropped"])
    assert counted["alone"] == 1


def test_a_full_disk_is_said_of_the_file_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task.rejected").write_bytes(b"x" * (1 << 20))
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(InputError, match=f"^{tmp_path}/no.jsonl: cannot write: No space left on device$"):
        rejected.collect([tmp_path / "task"], tmp_path / "no.jsonl")
