"""Fixtures of the pipeline's tests: a vocabulary; the package for near-duplicates."""

from pathlib import Path

import pytest

from tests.data_prep import raw


@pytest.fixture(scope="session")
def tok(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer.json; read only."""
    return raw.vocabulary(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture(scope="session")
def datasketch() -> None:
    pytest.importorskip("datasketch", reason="needs the packages of the extra `dumps`")
