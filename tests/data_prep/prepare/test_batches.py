import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import batches
from deepsiam.data_prep.prepare.batches import LARGEST, LEAST, Batch, Part
from deepsiam.data_prep.sources.source import Choices, File, Piece, Source

HALF = LEAST // 2
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


@given(
    st.lists(st.lists(st.integers(0, LEAST), max_size=6), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_parts_are_disjoint_and_together_all_in_order(sizes: list[list[int]], number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [numbers_file(Path(folder), str(index), row) for index, row in enumerate(sizes)]
        expected = [(str(index), ordinal) for index, row in enumerate(sizes) for ordinal in range(len(row))]
        assert pieces(cut(files)) == expected
        parts = [pieces(cut(files, Part(one, number))) for one in range(1, number + 1)]
        assert sorted(piece for part in parts for piece in part) == expected
        assert max(map(len, parts)) - min(map(len, parts)) <= len(files)


def test_a_batch_closes_with_the_piece_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = numbers_file(tmp_path, "a", [HALF, HALF, 3 * LEAST, 1, 1])
    assert [len(batch.pieces) for batch in cut([file])] == [2, 1, 2]
    monkeypatch.setattr(batches, "MOST", 2)
    assert [len(batch.pieces) for batch in cut([numbers_file(tmp_path, "b", [1] * 5)])] == [2, 2, 1]


def test_batches_grow_with_the_input_up_to_a_bound(tmp_path: Path) -> None:
    for total, expected in [(1, LEAST), (100 * LEAST, 2 * LEAST), (1 << 40, LARGEST)]:
        cut_batches = cut([numbers_file(tmp_path, str(total), [LEAST] * 40, total)])
        assert len(cut_batches[0].pieces) == expected // LEAST


def test_small_files_share_batches_and_large_ones_do_not(tmp_path: Path) -> None:
    small = [numbers_file(tmp_path, f"small {number}", [100, 100], 100) for number in range(20)]
    large = numbers_file(tmp_path, "large", [100], LEAST + 1)
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
    "sizes", [[3 * LEAST] * 40, [HALF] * 300, [5 * LEAST, 1000] * 60], ids=["large", "small", "mixed"]
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
    files = [
        numbers_file(tmp_path, "a", [1, 2]),
        numbers_file(tmp_path, "b", [3, "-", 4]),
        numbers_file(tmp_path, "c", [5]),
    ]
    cut_batches: list[Batch] = []
    with pytest.raises(InputError, match="b: damaged"):
        cut_batches.extend(batches.batches(NUMBERS, files, {}, ALL, ""))
    assert pieces(cut_batches) == [("a", 0), ("a", 1), ("b", 0)]
    with pytest.raises(InputError, match="gone: cannot read: No such file"):
        cut([File(tmp_path / "gone", "gone")])


def test_the_reported_progress_grows_to_the_size_of_the_input(tmp_path: Path) -> None:
    files = [numbers_file(tmp_path, str(number), [LEAST] * 3, LEAST + number) for number in range(1, 4)]
    read = [batch.read for batch in cut(files)]
    assert read == sorted(read)
    assert read[-1] <= 3 * LEAST + 6


@pytest.mark.parametrize("text", ["3/16", "1/1", "16/16"])
def test_a_part_is_parsed(text: str) -> None:
    part = Part.parse(text)
    assert f"{part.number}/{part.of}" == text


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "-1/2", "1/2/3", "a/b", "1/", "1.0/2"])
def test_a_malformed_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a part such as 3/16"):
        Part.parse(text)
