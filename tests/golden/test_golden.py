"""What the code computes today is what it computed when the golden values were recorded.

They are recorded anew by `python -m tests.golden --write`, only where a change of behaviour is meant.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.golden import old_run, preparations, rankings, trainings, values
from tests.golden.toy_data import ToyData

pytestmark = pytest.mark.slow  # a minute together

WRITE = "GOLDEN_WRITE" in os.environ  # set by `python -m tests.golden --write`


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ToyData:
    """The toy data of all sections."""
    return ToyData.make(tmp_path_factory.mktemp("data"))


def compare(section: str, computed: Any) -> None:
    """Compare a section with its golden values, or write them."""
    if WRITE:
        values.write(section, computed)
    found = list(values.differences(values.load(section), values.plain(computed)))
    assert not found, "\n".join([f"{section}: {len(found)} values differ from the golden ones", *found[:20]])


def test_micro_batches(data: ToyData, tmp_path: Path) -> None:
    compare("micro_batches", trainings.micro_batches(data, tmp_path))


def test_losses(data: ToyData, tmp_path: Path) -> None:
    compare("losses", trainings.losses(data, tmp_path))


def test_sources(tmp_path: Path) -> None:
    compare("sources", preparations.sources(tmp_path))


def test_formats(tmp_path: Path) -> None:
    compare("formats", preparations.formats(tmp_path))


def test_recipes() -> None:
    compare("recipes", preparations.recipes())


def test_rankings(data: ToyData, tmp_path: Path) -> None:
    compare("rankings", rankings.rankings(data, tmp_path))


def test_indexes(data: ToyData, tmp_path: Path) -> None:
    compare("indexes", rankings.indexes(data, tmp_path))


def test_exports(data: ToyData, tmp_path: Path) -> None:
    compare("exports", rankings.exports(data, tmp_path))


def test_old_run(data: ToyData, tmp_path: Path) -> None:
    if WRITE:
        (tmp_path / "write").mkdir()
        old_run.write(data, tmp_path / "write")
    compare("old_run", old_run.old_run(data, tmp_path))
