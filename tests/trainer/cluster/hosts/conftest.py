"""A cluster whose hosts answer as a test specifies."""

from pathlib import Path

import pytest

from tests.trainer.cluster.hosts import fake_ssh


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first in PATH, with a fake ssh; a host's answer is the file of its name."""
    fake_ssh.write(tmp_path, fake_ssh.ANSWERS)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path
