"""The members of a tar that is read as a stream, in order; none is extracted.

This module reads the headers itself: TarFile reads extended headers of any size and keeps every member in memory.
"""

import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from deepsiam.data_prep.common.errors import CutOffError, InputError, printable

LONGEST_HEADER = 1 << 16  # bytes of an extended header: a long name, or a list of attributes
BLOCK = tarfile.BLOCKSIZE

_EXTENDED = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
_WITHOUT_CONTENT = (
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)
_RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")


@dataclass(frozen=True)
class Member:
    """A member of a tar: a regular file with its first bytes, or a link, a device and the like without content."""

    name: str
    regular: bool
    content: bytes


def members(stream: BinaryIO, path: object, limit: int) -> Iterator[Member]:
    """Yield the members of the tar `path`, which `stream` reads, except folders; at most `limit` bytes of each.

    Tars may follow one another, as `cat` joins them; of other bytes after the end, a line on stderr says so.

    Raises:
        InputError: it is not a tar, is cut off, or has a header that is damaged or longer than LONGEST_HEADER; the
            message gives the byte of the inflated tar.
    """
    reader = _Reader(stream, path)
    attributes: dict[str, str] = {}  # of the next member, from extended headers
    at_end = False
    while header := reader.block(at_end):
        if not header.strip(b"\0"):
            at_end, attributes = True, {}
            continue
        try:
            info = reader.parse(header)
        except InputError:
            if not at_end:
                raise
            reader.pass_over_the_rest()
            return
        at_end = False
        if info.type in _EXTENDED:
            if info.size > LONGEST_HEADER:
                raise reader.damage(f"an extended header of {info.size:,} bytes")
            attributes |= _attributes(info.type, reader.content(info.size, info.size))
            continue
        if info.type == tarfile.GNUTYPE_SPARSE:
            extended = header[482]
            while extended:
                extended = reader.take(BLOCK)[504]
        listed = "0" if info.type in _WITHOUT_CONTENT else attributes.get("size", str(info.size))
        if not re.fullmatch("[0-9]{1,18}", listed):
            raise reader.damage(f"a size of {listed!r:.30}")
        regular = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not any(
            k.startswith("GNU.sparse") for k in attributes
        )
        content = reader.content(int(listed), limit if regular else 0)
        if not info.isdir():
            yield Member(attributes.get("path", info.name), regular, content)
        attributes = {}


def _attributes(kind: bytes, content: bytes) -> dict[str, str]:
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {"path": content.rstrip(b"\0").decode("utf-8", "replace")}
    attributes: dict[str, str] = {}
    at = 0
    while kind == tarfile.XHDTYPE and (record := _RECORD.match(content, at)) and int(record[1]):
        end = at + int(record[1])
        attributes[record[2].decode("utf-8", "replace")] = content[record.end() : end - 1].decode("utf-8", "replace")
        at = end
    return attributes


class _Reader:
    """Reads bytes from a stream and counts them."""

    def __init__(self, stream: BinaryIO, path: object):
        self.stream = stream
        self.path = path
        self.at = 0
        self.header = 0  # where the latest header is

    def damage(self, fault: str) -> InputError:
        return InputError(f"{self.path}: not a tar from byte {self.header:,} of its content on ({fault}); get it again")

    def take(self, size: int) -> bytes:
        content = self._read(size)
        if len(content) < size:
            raise CutOffError(f"{self.path}: the tar is cut off at byte {self.at:,} of its content; get it again")
        return content

    def block(self, at_end: bool) -> bytes:
        """Return the next block; after the end of a tar what is left, which may be nothing."""
        return self.take(BLOCK) if not at_end else self._read(BLOCK)

    def pass_over_the_rest(self) -> None:
        """Read to the end, to detect damage there, and say how much there is."""
        while self._read(1 << 20):
            pass
        tail = f"{self.at - self.header:,} bytes after the end of the tar, from byte {self.header:,} of its content on"
        print(printable(f"warning: {self.path}: {tail}, are no tar and are left out"), file=sys.stderr)

    def _read(self, size: int) -> bytes:
        content = self.stream.read(size)
        self.at += len(content)
        return content

    def parse(self, header: bytes) -> tarfile.TarInfo:
        self.header = self.at - len(header)
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
        except (tarfile.HeaderError, ValueError) as error:
            raise self.damage(str(error)) from error
        if info.size < 0:
            raise self.damage("a size below 0")
        return info

    def content(self, size: int, limit: int) -> bytes:
        """Return the first `limit` of `size` bytes; skip the others and the padding of their last block."""
        content = self.take(min(size, limit))
        bytes_left = size - len(content) + -size % BLOCK
        while bytes_left:
            bytes_left -= len(self.take(min(bytes_left, 1 << 20)))
        return content
