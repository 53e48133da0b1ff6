"""Fixtures shared by the tests of the benchmarks."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def forked_python(launcher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork what the benchmark starts by `sys.executable`, or by the launcher beside it."""
    monkeypatch.setattr(sys, "executable", str(launcher.with_name("python")))
