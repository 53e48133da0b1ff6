"""DeepSpeed's files on a disk that takes no more."""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from trainer.engine import CheckpointFiles

STATE = {"moments": torch.zeros(300), "step": 7}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A kernel that refuses the byte after `size`, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_wherever_in_a_file_the_disk_is_full_it_is_an_error_of_the_disk(tmp_path: Path) -> None:
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


def test_what_can_be_written_is(tmp_path: Path) -> None:
    files = CheckpointFiles()
    files.save(STATE, str(tmp_path / "file.pt"))
    assert files.error is None
    with pytest.raises(TypeError):  # a bug of ours is none of the disk's
        files.save({"step": (i for i in range(3))}, str(tmp_path / "generator.pt"))
    assert torch.load(tmp_path / "file.pt", weights_only=True)["step"] == 7
