"""The engine and DeepSpeed: precision of buffers, checkpoint files on a full disk, no compiler, a clock."""

import errno
import json
import math
import os
import time
from pathlib import Path

import pytest
import torch

from deepsiam.data_prep.common.files import sha256_of
from deepsiam.trainer.training.engine import hashed_file
from deepsiam.trainer.training.engine.clock import DeviceClock
from deepsiam.trainer.training.engine.compiler import SWITCH, without_compiler
from deepsiam.trainer.training.engine.engine import CheckpointFiles
from tests import toy
from tests.trainer.training.engine.full_disk import files_of_at_most

STATE = {"moments": torch.zeros(300), "step": 7}


@pytest.mark.parametrize("piece", [64, hashed_file.PIECE])  # the disk fails during torch's writes, or at the end
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


def test_files_are_written_until_the_first_error(tmp_path: Path) -> None:
    files = CheckpointFiles()
    files.save(STATE, str(tmp_path / "file.pt"))
    assert files.error is None
    path = tmp_path / "file.pt"
    assert files.written == {path: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}}
    with pytest.raises(TypeError):  # a bug, not a disk error
        files.save({"step": (i for i in range(3))}, str(tmp_path / "generator.pt"))
    assert torch.load(tmp_path / "file.pt", weights_only=True)["step"] == 7
    files.save(STATE, str(tmp_path / "none" / "first.pt"))
    assert isinstance(files.error, FileNotFoundError)
    files.save(STATE, str(tmp_path / "second.pt"))
    assert not (tmp_path / "second.pt").exists()


@pytest.mark.slow
def test_precisions_the_compiler_and_the_norm_of_the_gradient_without_zero(tmp_path: Path) -> None:
    (tmp_path / "zero0.json").write_text("{}")
    done = toy.launch(1, "tests.trainer.training.engine.opens_engines", tmp_path / "zero0.json")
    assert done.returncode == 0, done.stderr
    rotary, weights, has_compiler, with_zero, without = json.loads(done.stdout.splitlines()[-1])
    # an exported encoder computes its frequencies anew: if training rounded them to bf16, it would rotate otherwise
    assert (rotary, weights) == (["torch.float32"], ["torch.bfloat16"])
    assert not has_compiler  # it is imported for nothing that a run calls
    assert without[:2] == pytest.approx(with_zero[:2], rel=1e-5)
    assert without[0] > 0
    assert not math.isfinite(without[2]) or not math.isfinite(with_zero[2])


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.mark.parametrize("before", [None, "0"])
def test_nothing_is_compiled_and_the_switch_is_restored(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if before:
        monkeypatch.setenv(SWITCH, before)
    with without_compiler():
        assert torch.compile(double) is double
    assert os.environ.get(SWITCH) == before


def test_the_clock_adds_up_what_is_counted_and_begins_anew_when_taken() -> None:
    clock = DeviceClock(torch.device("cpu"))
    began = time.perf_counter()
    for _ in range(2):
        with clock.counting():
            time.sleep(0.01)
    longest = time.perf_counter() - began
    time.sleep(0.01)
    assert 0.02 <= clock.take() <= longest
    assert clock.take() == 0.0
