"""A process's stdout and stderr: any text can be written to them, and a full disk or a reader that is gone is named."""

import codecs
import io
import logging
import os
import sys
from typing import Any

STDOUT = "stdout"  # the `filename` of an OSError that writing to it raises
_BUFFER = 1 << 16  # bytes


class _Output(io.FileIO):
    """The file below stdout or stderr. If it is `lossy`, what cannot be written is lost, and nothing is raised."""

    def __init__(self, number: int, name: str, lossy: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.called, self.lossy, self.told = name, lossy, False

    def write(self, content: Any) -> int:
        """Write some of the bytes; return how many."""
        try:
            return super().write(content) or 0  # of a terminal that does not block: nothing yet
        except OSError as error:
            if not self.lossy:
                raise OSError(error.errno, error.strerror, self.called) from None
            if not self.told and self.called == STDOUT:
                self.told = True
                print(f"{STDOUT}: {error.strerror}: its lines are lost, the work goes on", file=sys.stderr, flush=True)
            return len(content)


def set_up(*, lossy: bool = False) -> None:
    """Let stdout and stderr take any text, and give a process that was started without them the null device.

    A failing stderr never ends the work; nor does a failing stdout if it is `lossy`. Otherwise writing to it raises an
    OSError whose `filename` is STDOUT. Streams that a test has put in their place stay, but take any text.
    """
    if lossy:  # a library's logger that holds the stdout of before would print a traceback for each lost line
        logging.raiseExceptions = False
    # opened in this order they take the numbers 0, 1 and 2: otherwise a shard could, and C libraries print to 1 and 2
    for name, mode in (("stdin", "r"), (STDOUT, "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, closefd=False))  # noqa: SIM115
    for number, name in enumerate((STDOUT, "stderr"), 1):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        stream.reconfigure(errors=_any_text.__name__)
        raw = getattr(stream.buffer, "raw", None)
        if isinstance(raw, _Output):
            raw.lossy |= lossy
        elif type(stream) is io.TextIOWrapper and stream.fileno() == number:
            stream.flush()
            buffer = io.BufferedWriter(_Output(number, name, lossy or name == "stderr"), _BUFFER)
            by_line = stream.line_buffering or stream.write_through
            setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=by_line))


def _any_text(error: UnicodeError) -> tuple[str | bytes, int]:
    """Encode a character that the encoding lacks: a byte of a file's name as that byte, any other as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) & 0xFF]), error.start + 1
    return character.encode("ascii", "backslashreplace").decode(), error.start + 1


codecs.register_error(_any_text.__name__, _any_text)
