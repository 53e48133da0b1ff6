"""Read a file that is a JSON array of objects, with one object in memory at a time, or one of JSON lines."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.format import BYTE_ORDER_MARK, LONGEST_LINE, Where, json_lines
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.compressed import open_input

PIECE = 1 << 20  # characters read at once
LONGEST_TOKEN = 16  # characters of a literal or an escape, such as -Infinity
_SPACE = " \t\r\n"


def json_records(path: Path) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield each object of a JSON array or of JSON lines, whichever the file has."""
    return json_items(path) if beginning(path).startswith(b"[") else json_lines(path)


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file, inflated, without a byte-order mark and spaces."""
    with open_input(path) as stream:
        return stream.read(64).removeprefix(BYTE_ORDER_MARK).lstrip()


def json_items(path: Path) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield each object of the array, with the line on which it begins and its number from 1."""
    with open_input(path) as stream:
        text = _Text(path, stream)
        if text.next() != "[":
            raise InputError(f"{text.where}: not a JSON array: it does not begin with [")
        text.skip(1)
        if text.next() != "]":
            yield text.value()
            while text.next() == ",":
                text.skip(1)
                text.next()
                yield text.value()
        if text.next() != "]":
            raise InputError(f"{text.where}: not a JSON array: neither , nor ] after an object; is the file cut short?")
        text.skip(1)
        if text.next():
            raise InputError(f"{text.where}: not a JSON array: there is more after its ]")


class _Text:
    """The characters that were read and not yet consumed."""

    def __init__(self, path: Path, stream: Any) -> None:
        self.path, self.stream = path, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        self.line, self.held, self.at, self.element = 1, "", 0, 0
        self.decoder = json.JSONDecoder()

    @property
    def where(self) -> Where:
        return Where(self.path, self.line)

    def next(self) -> str:
        """Return the next character that is not a space; empty at the end."""
        while True:
            while self.at < len(self.held):
                if (character := self.held[self.at]) not in _SPACE:
                    return character
                self.skip(1)
            if not self.read(PIECE):
                return ""

    def skip(self, characters: int) -> None:
        """Skip this number of characters."""
        self.line += self.held.count("\n", self.at, self.at + characters)
        self.at += characters

    def value(self) -> tuple[Where, dict[str, Any]]:
        """Parse and consume the object that begins here."""
        self.element += 1
        where, size = self.where._replace(item=f"element {self.element}"), PIECE
        while True:
            try:
                value, end = self.decoder.raw_decode(self.held, self.at)
                break
            except (ValueError, RecursionError) as error:
                line = self.line + self.held.count("\n", self.at, getattr(error, "pos", self.at))
                # then more of the file may mend it, but not too deep nesting or a number of too many digits
                cut_short = isinstance(error, json.JSONDecodeError) and (
                    error.msg.startswith("Unterminated string") or error.pos > len(self.held) - LONGEST_TOKEN
                )
                if cut_short and len(self.held) - self.at > LONGEST_LINE:
                    raise InputError(f"{where}: an object of more than {LONGEST_LINE:,} characters") from None
                if not (cut_short and self.read(size)):
                    where = where._replace(line=line)
                    raise InputError(f"{where}: not JSON ({getattr(error, 'msg', error)})") from error
                size *= 2  # doubled, so that an object is parsed only a few times
        if not isinstance(value, dict):
            raise InputError(f"{where}: not a JSON object")
        self.skip(end - self.at)
        return where, value

    def read(self, size: int) -> bool:
        """Read more of the file; return False at its end."""
        try:
            characters = self.stream.read(size)
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: not UTF-8 after line {self.line} ({error.reason})") from error
        self.held, self.at = self.held[self.at :] + characters, 0
        return bool(characters)
