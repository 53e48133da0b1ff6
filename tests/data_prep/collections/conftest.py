"""The small folder in BEIR's layout that most tests build."""

from pathlib import Path

import pytest

from tests.data_prep.collections.beir_folder import write_beir


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "beir")
