"""Checkpoint files: hashed while written, whatever the disk does; DeepSpeed's are read as plain values only."""

import errno
import hashlib
import os
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock, patch

import pytest
import safetensors.torch
import torch
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine import hashed_file as module
from deepsiam.trainer.training.engine import plain_files
from deepsiam.trainer.training.engine.hashed_file import HashedFile, hashed_file, write_weights
from deepsiam.trainer.training.engine.plain_files import plain_values_only
from tests.trainer.training.engine.full_disk import files_of_at_most
from tests.trainer.training.engine.hostile_pickles import callers


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 8)
    monkeypatch.setattr(module, "AHEAD", 2)


def write(path: Path, *blocks: bytes, then: type[BaseException] | None = None) -> None:
    """Write blocks into a hashed file, and raise an exception in the middle of it."""
    with hashed_file(path) as file:
        for block in blocks:
            file.write(block)
        if then:
            file.flush()
            raise then


@given(blocks=st.lists(st.binary(max_size=40)), piece=st.integers(1, 50), ahead=st.integers(0, 3))
def test_bytes_and_digest_are_those_of_what_was_written(blocks: list[bytes], piece: int, ahead: int) -> None:
    with (
        TemporaryDirectory() as folder,
        patch.object(module, "PIECE", piece),
        patch.object(module, "AHEAD", ahead),
        patch.object(os, "fsync"),  # slow on a busy disk
    ):
        path = Path(folder) / "file"
        with hashed_file(path) as file:
            for number, block in enumerate(blocks):
                memory = bytearray(block)
                assert file.write(memoryview(memory)) == len(block)
                memory[:] = b"?" * len(block)  # the caller may reuse its memory
                if number % 3 == 0:
                    file.flush()
        whole = b"".join(blocks)
        assert path.read_bytes() == whole
        assert file.entry() == {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()}


@pytest.mark.usefixtures("_small_pieces")
def test_a_disk_full_at_any_byte_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    for size in range(30):  # every size below the file's 30 bytes
        with pytest.raises(OSError, match="File too large: '.*cut'") as raised, files_of_at_most(size):
            write(tmp_path / "cut", *[b"abc"] * 10)
        assert raised.value.errno == errno.EFBIG
        assert (tmp_path / "cut").stat().st_size == size


@pytest.mark.usefixtures("_small_pieces")
def test_errors_of_syncing_and_of_the_hashing_thread_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match="Input/output error: '.*file'"):
            write(tmp_path / "file")
    monkeypatch.setattr(hashlib, "sha256", lambda: Mock(update=Mock(side_effect=MemoryError)))
    for pieces in (1, 50):
        with pytest.raises(MemoryError):
            write(tmp_path / "file", *[bytes(8)] * pieces)


def test_nothing_stays_open_however_the_block_ends(tmp_path: Path) -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = count()
    with hashed_file(tmp_path / "file") as file:
        file.write(b"abc")
        assert count() != before
        file.flush()
    assert count() == before
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "file", b"abc", then=KeyboardInterrupt)
    assert count() == before
    with pytest.raises(FileNotFoundError, match="no/file"):
        write(tmp_path / "no" / "file")
    assert count() == before


class SlowThread:
    """A thread that does its work only when someone waits for it."""

    def __init__(self) -> None:
        self.waiting = 0

    def submit(self, work: Callable[[bytes], None], piece: bytes) -> Mock:
        def result() -> None:
            work(piece)
            self.waiting -= 1

        self.waiting += 1
        return Mock(result=result)


@pytest.mark.usefixtures("_small_pieces")
def test_what_is_kept_in_memory_for_a_slow_thread_is_bounded(tmp_path: Path) -> None:
    thread = SlowThread()
    with open(tmp_path / "file", "wb") as opened:
        file = HashedFile(tmp_path / "file", opened.fileno(), thread)  # type: ignore[arg-type]
        for _ in range(20):
            file.write(bytes(24))
            assert thread.waiting <= 2
        file.sync()
    assert thread.waiting == 0
    assert file.entry() == {"bytes": 480, "sha256": hashlib.sha256(bytes(480)).hexdigest()}


def test_its_bytes_are_those_of_the_library_in_fp32(tmp_path: Path) -> None:
    named = ["layer.10", "layer.9", "é", "Z", "\U0001f600", "\uffee", 'a "quoted"\n\t\x01\\name/']
    several = {"scalar": torch.randn(()), "b": torch.randn(5, 7), "a": torch.randn(2, 3, 4), "empty": torch.randn(0, 3)}
    others = {"half": torch.randn(4, 3).bfloat16(), "turned": torch.randn(4, 3).T}
    for weights in ({}, {"weight": torch.randn(3)}, several, {name: torch.randn(2, 2) for name in named}, others):
        weights = dict(sorted(weights.items()))
        with hashed_file(tmp_path / "file") as file:
            write_weights(file, {name: tuple(weight.shape) for name, weight in weights.items()}, weights.values())
        expected = {name: weight.float().contiguous() for name, weight in weights.items()}
        assert (tmp_path / "file").read_bytes() == safetensors.torch.save(expected)


def test_a_weight_that_is_not_what_the_header_says_is_refused(tmp_path: Path) -> None:
    for weights in ([torch.zeros(3)], [torch.zeros(2), torch.zeros(2)], []):
        with hashed_file(tmp_path / "file") as file, pytest.raises(ValueError, match="shape|shorter|longer"):
            write_weights(file, {"a": (2,)}, weights)


WITH_CLASSES = {
    "module": OrderedDict(weight=torch.arange(6.0).reshape(2, 3)),
    "loss_scaler": LossScaler(1),
    "dynamic": DynamicLossScaler(2**12, 2.0, 1000, 1.0, 2, False),
    "zero_stage": ZeroStageEnum.weights,
    "slices": [OrderedDict(weight=fragment_address(6, 0))],
    "dtype": torch.bfloat16,
    "shape": torch.Size([2, 3]),
    "ds_config": {"tensorboard": {"output_path": "/somewhere/else"}},
}


def load(file: Path) -> Any:
    with plain_values_only():
        return torch.load(file, map_location="cpu", weights_only=False)  # as DeepSpeed calls it


def test_deepspeeds_own_classes_are_read(tmp_path: Path) -> None:
    torch.save(WITH_CLASSES, tmp_path / "a.pt")
    plain_files.check(tmp_path)
    read = load(tmp_path / "a.pt")
    torch.testing.assert_close(read["module"]["weight"], torch.arange(6.0).reshape(2, 3))
    assert vars(read["dynamic"]) == vars(WITH_CLASSES["dynamic"])
    assert read["slices"] == WITH_CLASSES["slices"]
    assert read["zero_stage"] == ZeroStageEnum.weights
    assert (read["dtype"], read["shape"]) == (torch.bfloat16, torch.Size([2, 3]))


@pytest.mark.parametrize("forced", ["0", "1"])
@pytest.mark.parametrize("kind", list(callers(Path())))
def test_code_is_refused_and_not_run(tmp_path: Path, kind: str, forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", forced)
    (tmp_path / "engine" / "deeper").mkdir(parents=True)
    file = tmp_path / "engine" / "deeper" / "states.pt"
    torch.save({**WITH_CLASSES, "more": [{"deep": callers(tmp_path / "ran")[kind]}]}, file)
    for read in (lambda: plain_files.check(tmp_path / "engine"), lambda: load(file)):
        with pytest.raises(InputError, match=r"deeper/states.pt: .*it asks for \S+, which could run code.*resume only"):
            read()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../../outside", "/etc/outside", "..", "a/b", "a\0b", "a\nb", "x" * 90 + "/"])
def test_a_string_that_could_be_a_path_is_refused(tmp_path: Path, name: str) -> None:
    """The conversion for another number of ranks makes a folder with the name of each parameter."""
    for values in ({name: torch.zeros(1)}, {"shared": name}, [(name, 1)]):
        torch.save({"param_shapes": values}, tmp_path / "a.pt")
        with pytest.raises(InputError, match="a.pt: .* is not a name") as caught:
            plain_files.check(tmp_path)
        assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_compressed_and_damaged_files_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "whole.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "w", 8) as packed:
        for entry in plain.infolist():
            packed.writestr(entry.filename, plain.read(entry))
    (tmp_path / "legacy.pt").write_bytes(b"")
    torch.save({"a": 1}, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "cut.pt").write_bytes(whole[:-200])
    (tmp_path / "empty.pt").write_bytes(b"")
    at = whole.index(b"\x80\x02}")  # the pickle: protocol 2, a dictionary
    (tmp_path / "flipped.pt").write_bytes(whole[:at] + b"\x80\x02\xff" + whole[at + 3 :])
    for name, reason in {"bomb": "compressed", "legacy": "", "cut": "", "empty": "", "flipped": ""}.items():
        with pytest.raises(InputError, match=f"{name}.pt: .*{reason}"):
            load(tmp_path / f"{name}.pt")
    assert len(load(tmp_path / "whole.pt")["weight"]) == 1000


def test_values_that_repeat_one_another_are_walked_once(tmp_path: Path) -> None:
    values: list[object] = ["a"]
    for _ in range(64):
        values = [values, values]
    torch.save(values, tmp_path / "a.pt")
    plain_files.check(tmp_path)


def test_classes_that_others_register_with_torch_are_refused_and_torch_reads_other_files_as_before(
    tmp_path: Path,
) -> None:
    before = torch.load, set(torch.serialization.get_safe_globals())
    torch.save(Path(), tmp_path / "a.pt")
    with torch.serialization.safe_globals([type(Path())]), pytest.raises(InputError, match="it asks for pathlib"):
        load(tmp_path / "a.pt")
    torch.save(WITH_CLASSES, tmp_path / "a.pt")
    load(tmp_path / "a.pt")
    assert (torch.load, set(torch.serialization.get_safe_globals())) == before
