"""A file that is hashed while it is written: its entry matches its bytes, and no error is lost."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock, patch

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.training.engine import hashed_file as module
from deepsiam.trainer.training.engine.hashed_file import HashedFile, hashed_file, write_weights
from tests.trainer.training.engine.full_disk import files_of_at_most


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


def test_an_error_of_syncing_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error: '.*file'"):
        write(tmp_path / "file")


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("pieces", [1, 50])
def test_an_error_of_the_hashing_thread_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    monkeypatch.setattr(hashlib, "sha256", lambda: Mock(update=Mock(side_effect=MemoryError)))
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


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"weight": (3,)},
        {"scalar": (), "b.weight": (5, 7), "a.weight": (2, 3, 4), "empty": (0, 3)},
        {"layer.10": (1,), "layer.9": (2,), "é": (2,), "Z": (1,), "\U0001f600": (1,), "\uffee": (3,)},
        {'a "quoted"\n\t\x01\\name/': (2, 2)},
    ],
)
def test_its_bytes_are_those_of_the_library(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    weights = {name: torch.randn(shape) for name, shape in shapes.items()}
    with hashed_file(tmp_path / "file") as file:
        write_weights(file, dict(sorted(shapes.items())), (weights[name] for name in sorted(weights)))
    assert (tmp_path / "file").read_bytes() == safetensors.torch.save(weights)
    read = safetensors.torch.load_file(tmp_path / "file")
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(read[name], tensor, rtol=0, atol=0)


def test_other_precisions_and_layouts_are_written_in_fp32(tmp_path: Path) -> None:
    matrix = torch.randn(4, 3)
    with hashed_file(tmp_path / "file") as file:
        write_weights(file, {"half": (4, 3), "turned": (3, 4)}, [matrix.bfloat16(), matrix.T])
    read = safetensors.torch.load_file(tmp_path / "file")
    torch.testing.assert_close(read["half"], matrix.bfloat16().float(), rtol=0, atol=0)
    torch.testing.assert_close(read["turned"], matrix.T.contiguous(), rtol=0, atol=0)


def test_a_weight_that_is_not_what_the_header_says_is_refused(tmp_path: Path) -> None:
    for weights in ([torch.zeros(3)], [torch.zeros(2), torch.zeros(2)], []):
        with hashed_file(tmp_path / "file") as file, pytest.raises(ValueError, match="shape|shorter|longer"):
            write_weights(file, {"a": (2,)}, weights)
