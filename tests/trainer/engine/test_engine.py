"""DeepSpeed's checkpoint files on a full disk."""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from trainer.engine.engine import CheckpointFiles

STATE = {"moments": torch.zeros(300), "step": 7}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Make the kernel refuse the byte after `size`, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_at_any_byte_gives_the_error_of_the_disk(tmp_path: Path) -> None:
    whole = tmp_path / "whole.pt"
    torch.save(STATE, whole)
    for size in range(whole.stat().st_size):
        files = CheckpointFiles()
        with files_of_at_most(size):
            files.save(STATE, str(tmp_path / "cut.pt"))
        assert isinstance(files.error, OSError), f"at byte {size}"
        assert files.error.errno == errno.EFBIG


def test_after_the_first_error_nothing_is_written(tmp_path: Path) -> None:
    files = CheckpointFiles()
    files.save(STATE, str(tmp_path / "none" / "first.pt"))
    assert isinstance(files.error, FileNotFoundError)
    files.save(STATE, str(tmp_path / "second.pt"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_and_an_error_of_the_state_is_raised(tmp_path: Path) -> None:
    files = CheckpointFiles()
    files.save(STATE, str(tmp_path / "file.pt"))
    assert files.error is None
    with pytest.raises(TypeError):  # a bug, not an error of the disk
        files.save({"step": (i for i in range(3))}, str(tmp_path / "generator.pt"))
    assert torch.load(tmp_path / "file.pt", weights_only=True)["step"] == 7
