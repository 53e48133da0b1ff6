"""What every format must do: one suite, which the tests of a format inherit and give a sample and what is refused."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.format import Format
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep.collections.raw_formats import Lists, write_files


def choices(opened: Collection, split: str) -> list[tuple[str, dict[str, float]]]:
    """Return, for each group of a split, its query and its candidates with their labels, in order."""
    groups = opened.groups(split)
    found = []
    for i in range(len(groups)):
        query, candidates, labels = groups[i]
        texts = [opened.corpus.text(candidate) for candidate in candidates.tolist()]
        found.append((opened.queries.text(query), dict(zip(texts, labels.tolist(), strict=True))))
    return found


def lines(*found: object, end: str = "\n") -> str:
    """Return one item per line: texts as they are, rows between tabs, anything else as JSON."""
    texts = (
        x if isinstance(x, str) else "\t".join(map(str, x)) if isinstance(x, tuple) else json.dumps(x) for x in found
    )
    return "".join(text + end for text in texts)


def at(folder: Path, given: str) -> Path:
    """Return an input of the command: a name in a folder, behind the name of a split if there is one."""
    split, equals, name = given.rpartition("=")
    return Path(f"{split}{equals}{folder / name}")


class FormatContract:
    """Tests of one format, by its name in the registry.

    Attributes:
        files: a sample, content by name.
        given: the names that a user gives, `SPLIT=NAME` or `.` for the folder; without any, those of all files.
        found: each query of each split with its labelled candidates.
        ids: those of the documents and of the queries, if the files have them.
        classes: those of pairs of texts.
        scores: a teacher's, of all candidates of a split in order.
        counts: how many documents and queries are stored, each text once.
        parts: those of the first queries, as the format yields them.
        pools: the documents that the queries of a split rank.
        excluded: the numbers of the documents that do not count for each query.
        remarks: what the user is told of the sample; `{folder}` is where it is.
        refused: a file, what is added to it (text is a line, anything else a JSON object), and the message. A table of
            files by name replaces the sample's, None is a file that is missing; a list is the names that a user gives.
    """

    name: ClassVar[str]
    files: ClassVar[Mapping[str, str]]
    given: ClassVar[Sequence[str]] = ()
    found: ClassVar[Mapping[str, Lists]]
    ids: ClassVar[tuple[Sequence[str], Sequence[str]] | None] = None
    classes: ClassVar[Sequence[str]] = ()
    scores: ClassVar[Mapping[str, Sequence[float]]] = {}
    counts: ClassVar[tuple[int, int] | None] = None
    parts: ClassVar[Sequence[Sequence[str]]] = ()
    pools: ClassVar[Mapping[str, Sequence[str]]] = {}
    excluded: ClassVar[Sequence[Sequence[int]]] = ()
    remarks: ClassVar[Sequence[str]] = ()
    refused: ClassVar[Sequence[tuple[Any, ...]]] = ()

    def inputs(self, folder: Path) -> list[Path]:
        return [at(folder, given) for given in self.given or self.files]

    def reader(self, folder: Path) -> Format:
        return FORMATS[self.name](self.inputs(folder))

    def build(self, folder: Path, files: Mapping[str, str], small: Tokenizer, strict: bool = False) -> Collection:
        """Write files to a folder and build them beside it."""
        write_files(folder, files)
        return build(self.name, self.inputs(folder), folder.parent / "out", small, strict=strict)

    def test_the_sample_is_read(self, tmp_path: Path, small: Tokenizer) -> None:
        opened = self.build(tmp_path / "in", self.files, small, strict=True)
        lists = {split: choices(opened, split) for split in opened.splits()}
        assert lists == self.found
        for split, found in self.found.items():  # the candidates of each query are in order, too
            assert [[*labels] for _, labels in lists[split]] == [[*labels] for _, labels in found]
        assert not self.ids or self.ids == ([*opened.corpus.ids], [*opened.queries.ids])
        assert self.counts in (None, (len(opened.corpus), len(opened.queries)))
        for split, pool in self.pools.items():
            assert [opened.corpus.text(i) for i in opened.pool(split).tolist()] == pool
        for split, scores in self.scores.items():
            np.testing.assert_array_equal(opened.groups(split).scores, scores)
        assert not self.classes or opened.manifest["classes"] == [*self.classes]
        for query, documents in enumerate(self.excluded):
            assert opened.excluded.of(query).tolist() == documents
        assert opened.manifest["remarks"] == [remark.format(folder=tmp_path / "in") for remark in self.remarks]
        reader = self.reader(tmp_path / "in")
        assert {record["file"] for record in opened.manifest["inputs"]} == set(map(str, reader.paths))
        assert [list(text.parts) for text in reader.queries()][: len(self.parts)] == list(self.parts)

    def test_iterators_may_be_taken_twice(self, tmp_path: Path) -> None:
        reader = self.reader(write_files(tmp_path / "in", self.files))

        def everything() -> Iterator[object]:
            yield from reader.corpus()
            yield from reader.queries()
            for split in reader.splits():
                yield from reader.groups(split)

        assert list(everything()) == list(everything())

    def test_gzip_windows_line_ends_and_byte_order_marks(self, tmp_path: Path, small: Tokenizer) -> None:
        marked = {name: "\ufeff" + text.replace("\r", "").replace("\n", "\r\n") for name, text in self.files.items()}
        opened = self.build(tmp_path / "windows", {n: text + "\r\n" for n, text in marked.items()}, small)
        assert {split: choices(opened, split) for split in opened.splits()} == self.found
        zipped = {f"{name.removesuffix('.gz')}.gz": text for name, text in marked.items()}
        files = self.given or self.files
        given = [f"{name.removesuffix('.gz')}.gz" if name.rpartition("=")[2] in self.files else name for name in files]
        folder = write_files(tmp_path / "zipped", zipped)
        opened = build(self.name, [at(folder, name) for name in given], tmp_path / "zip", small)
        assert {split: choices(opened, split) for split in opened.splits()} == self.found

    def test_files_that_are_missing_cut_short_or_not_utf_8(self, tmp_path: Path, small: Tokenizer) -> None:
        with pytest.raises(InputError, match="nowhere.*: no such f"):
            build(self.name, [tmp_path / "nowhere" / Path(self.inputs(tmp_path)[0]).name], tmp_path / "out", small)
        folder = write_files(tmp_path / "damaged", self.files)
        for file in self.reader(folder).paths:
            content = file.read_bytes()
            plain = file.suffix != ".gz"
            file.write_bytes(content + b"\xff\n" if plain else content[:-9])
            with pytest.raises(InputError, match=rf"{re.escape(str(file))}.*(not UTF-8|more after|element|cut)"):
                build(self.name, self.inputs(folder), tmp_path / "out", small)
            file.write_bytes(content)
        assert not (tmp_path / "out").exists()

    def test_bad_input_is_named_and_nothing_is_written(self, tmp_path: Path, small: Tokenizer, bad: Any) -> None:
        *change, reason = bad
        files, given = {**self.files}, list(self.given or self.files)
        match change:
            case [str(name), added]:
                files[name] = files.get(name, "") + lines(added)
            case [dict(others)]:
                files = {name: text for name, text in {**files, **others}.items() if text is not None}
            case [list(names)]:
                given = names
            case [dict(others), list(names)]:
                files, given = files | others, names
        folder = write_files(tmp_path / "in", files)
        with pytest.raises(InputError, match=re.escape(change[0]) + reason if reason[0] == ":" else reason):
            build(self.name, [at(folder, name) for name in given], tmp_path / "out", small, strict=True)
        assert not (tmp_path / "out").exists()
