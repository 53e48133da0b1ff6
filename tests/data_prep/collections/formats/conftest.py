"""Every collection that is built in these tests also shows that its format names the files it reads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.collections import write_groups, write_texts
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.sources import compressed, parquet
from deepsiam.data_prep.sources.bytes_read import Item

UNCOUNTED = {"manifest.json", "tokenizer.json"}  # of folders of shards, read at the start


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each bad input that a class with the contract names, and of empty files."""
    if metafunc.cls and "bad" in metafunc.fixturenames:
        empty = dict.fromkeys(metafunc.cls.files, ""), "is empty|no texts|no file in it"
        metafunc.parametrize("bad", [empty, *metafunc.cls.refused], ids=lambda bad: bad[-1])


@pytest.fixture(autouse=True)
def files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the files that each pass opens, unless it needs none any more, with those that tell its time left."""
    opened: set[Path] = set()

    def noting(function: Callable[..., Any], path_of: Callable[..., Path]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            opened.add(path_of(*arguments))
            return function(*arguments)

        return noted

    def track_files(items: Iterable[Item], what: str, unit: str, files: Sequence[Path]) -> Iterator[Item]:
        opened.clear()
        yield from items
        assert opened in (set(), {file for file in files if file.name not in UNCOUNTED}), what

    for module, name in ((compressed, "_pieces"), (parquet, "_opened")):
        monkeypatch.setattr(module, name, noting(getattr(module, name), lambda path, *_: path))
    by_number = noting(Shard.open, lambda manifest, number: manifest.directory / manifest.shards[number].name)
    monkeypatch.setattr(Shard, "open", by_number)
    for module in (write_groups, write_texts):
        monkeypatch.setattr(module, "track_files", track_files)
