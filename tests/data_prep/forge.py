"""Build shards as a hostile author would."""

import io
import json
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.shards.manifest import NAME


class TouchesAFile:
    """Create a file named `ran` in the working folder when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch ran",)


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest's record."""
    record = json.loads((directory / NAME).read_text())
    change(record)
    (directory / NAME).write_text(json.dumps(record))


def vouch_again(directory: Path) -> None:
    """Update size and hash of shard 0 in the manifest."""
    path = directory / "shard-000000.tar"
    edit(directory, lambda r: r["shards"][0].update(bytes=path.stat().st_size, sha256=sha256_of(path)))


def pack(path: Path, members: list[tuple[str, bytes]], kind: bytes = tarfile.REGTYPE) -> None:
    """Write a tar; links lead to /etc/passwd."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            member.linkname = "" if kind == tarfile.REGTYPE else "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))


def unpack(path: Path) -> list[tuple[str, bytes]]:
    """Return the members of a tar: name and content."""
    with tarfile.open(path) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def swap_member(directory: Path, number: int, content: bytes) -> None:
    """Replace the content of one member of shard 0 (0: the first .npz, 1: its .json, ...)."""
    path = directory / "shard-000000.tar"
    members = unpack(path)
    members[number] = (members[number][0], content)
    pack(path, members)
    vouch_again(directory)


def npz(**arrays: np.ndarray) -> bytes:
    """Return an .npz as np.savez writes it, also of object arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return one tar header, with any size."""
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, "/etc/passwd"
    return member.tobuf(tarfile.GNU_FORMAT)


def row(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def zipped(ids: bytes, name: str = "ids.npy", compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an .npz of one token whose ids member has these bytes."""
    good = npz(ids=np.array([1], np.uint16), segments=row(1), documents=row(1))
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as source, zipfile.ZipFile(buffer, "w", compression) as forged:
        forged.writestr(name, ids)
        for other in ("segments.npy", "documents.npy"):
            forged.writestr(other, source.read(other))
    return buffer.getvalue()


def npy(literal: bytes, payload: bytes = b"\1\0") -> bytes:
    """Return a .npy file with an arbitrary header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", min(len(literal) + 1, 65535)) + literal + b"\n" + payload


def described(shape: str, dtype: str = "'<u2'", order: str = "False") -> bytes:
    return zipped(npy(f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()))


def patched(content: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite the first central directory entry of `content` at `offset`."""
    place = content.index(b"PK\1\2") + offset
    return content[:place] + value + content[place + len(value) :]


ONE = zipped(npy(b"{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }"))
ZIP64 = struct.pack("<HHQQQ", 1, 24, 1 << 63, 1 << 63, (1 << 64) - 1)  # sizes and offset beyond any file


def far_away() -> bytes:
    """Return an .npz whose first member claims to be at byte 2^64 - 1."""
    content = patched(ONE, 20, b"\xff" * 8)
    content = patched(content, 42, b"\xff" * 4)
    content = patched(content, 30, struct.pack("<H", len(ZIP64)))
    place = content.index(b"PK\1\2") + 46 + len("ids.npy")
    end = content.index(b"PK\5\6")
    size = struct.unpack("<I", content[end + 12 : end + 16])[0] + len(ZIP64)
    tail = content[end : end + 12] + struct.pack("<I", size) + content[end + 16 :]
    return content[:place] + ZIP64 + content[place:end] + tail


def overlapping() -> bytes:
    """Return an .npz whose members are all the same bytes."""
    content, start = ONE, 0
    for _ in range(3):
        start = content.index(b"PK\1\2", start) + 42
        content = content[:start] + bytes(4) + content[start + 4 :]
    return content


def deflated() -> bytes:
    """Return a megabyte that inflates to a gigabyte: one flushed block of zeros, a thousand times."""
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = press.compress(bytes(1 << 20)) + press.flush(zlib.Z_FULL_FLUSH)
    return patched(zipped(block * 1000), 10, struct.pack("<H", zipfile.ZIP_DEFLATED))


def crowded(size: int) -> bytes:
    """Return an .npz of about `size` bytes: as many entries as fit, all of the same member."""
    first = ONE.index(b"PK\1\2")
    one_entry = ONE[first : first + 46 + len("ids.npy")]
    count = (size - 1000) // len(one_entry)
    tail = b"PK\5\6" + bytes(4) + b"\xff" * 4 + struct.pack("<II", count * len(one_entry), first) + bytes(2)
    return ONE[:first] + one_entry * count + tail
