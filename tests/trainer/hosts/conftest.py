"""A cluster whose hosts answer as a test asks."""

from pathlib import Path

import pytest

from tests.trainer.hosts import fake_ssh


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an ssh that is found first; a file of a host's name is its answer."""
    fake_ssh.write(tmp_path, fake_ssh.ANSWERS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path
