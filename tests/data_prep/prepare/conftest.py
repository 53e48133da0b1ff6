"""Fixtures of the pipeline's tests: no write waits for the disk; a vocabulary; the package for near-duplicates."""

import os
from pathlib import Path

import pytest

from tests.data_prep import raw


@pytest.fixture(autouse=True)
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def tok(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer.json; read only."""
    return raw.vocabulary(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture(scope="session")
def datasketch() -> None:
    pytest.importorskip("datasketch", reason="needs the packages of the extra `dumps`")
