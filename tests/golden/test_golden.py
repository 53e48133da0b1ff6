"""What the code computes today is what it computed when the golden values were recorded.

They are recorded anew by `python -m tests.golden --write`, only where a change of behaviour is meant.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden import old_run, preparations, rankings, trainings, values
from tests.golden.toy_data import ToyData

pytestmark = pytest.mark.slow  # a minute together

WRITE = "GOLDEN_WRITE" in os.environ  # set by `python -m tests.golden --write`
SECTIONS: dict[str, Callable[[ToyData, Path], Any]] = {
    "micro_batches": trainings.micro_batches,
    "losses": trainings.losses,
    "sources": lambda _, folder: preparations.sources(folder),
    "formats": lambda _, folder: preparations.formats(folder),
    "recipes": lambda *_: preparations.recipes(),
    "rankings": rankings.rankings,
    "indexes": rankings.indexes,
    "exports": rankings.exports,
    "old_run": old_run.old_run,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ToyData:
    """The toy data of all sections."""
    return ToyData.make(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("section", SECTIONS)
def test_golden_values(section: str, data: ToyData, tmp_path: Path) -> None:
    if WRITE and section == "old_run":
        (tmp_path / "write").mkdir()
        old_run.write(data, tmp_path / "write")
    computed = SECTIONS[section](data, tmp_path)
    if WRITE:
        values.write(section, computed)
    found = list(values.differences(values.load(section), values.plain(computed)))
    assert not found, "\n".join([f"{section}: {len(found)} values differ from the golden ones", *found[:20]])
