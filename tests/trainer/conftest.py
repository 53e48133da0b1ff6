"""The toy collection, opened, and commands that refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.collection import Collection


@pytest.fixture
def opened(toy_collection: Path) -> Collection:
    """The toy collection, opened."""
    return Collection.open(toy_collection)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command, which must exit with code 2 and say one line on stderr; return the line."""

    def run(main: Callable[[list[str]], object], *arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([*map(str, arguments)])
        (line,) = capsys.readouterr().err.splitlines()
        assert stopped.value.code == 2
        return line

    return run
