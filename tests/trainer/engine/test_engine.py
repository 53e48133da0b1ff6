"""DeepSpeed's checkpoint files on a full disk."""

import errno
from pathlib import Path

import pytest
import torch

from data_prep.common.files import sha256_of
from tests.trainer.engine.full_disk import files_of_at_most
from trainer.engine import hashed_file
from trainer.engine.engine import CheckpointFiles

STATE = {"moments": torch.zeros(300), "step": 7}


@pytest.mark.parametrize("piece", [64, hashed_file.PIECE])  # the disk refuses torch in the middle, or all at the end
def test_a_disk_that_is_full_at_any_byte_gives_the_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(hashed_file, "PIECE", piece)
    whole = tmp_path / "whole.pt"
    torch.save(STATE, whole)
    for size in range(0, whole.stat().st_size, 23):
        files = CheckpointFiles()
        with files_of_at_most(size):
            files.save(STATE, str(tmp_path / "cut.pt"))
        assert isinstance(files.error, OSError), f"at byte {size}"
        assert files.error.errno == errno.EFBIG
        assert files.error.filename == str(tmp_path / "cut.pt")
        assert files.written == {}


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
    path = tmp_path / "file.pt"
    assert files.written == {path: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}}
    with pytest.raises(TypeError):  # a bug, not an error of the disk
        files.save({"step": (i for i in range(3))}, str(tmp_path / "generator.pt"))
    assert torch.load(tmp_path / "file.pt", weights_only=True)["step"] == 7
