"""The exception for everything that the user can fix, and how a command exits on it."""

import difflib
import errno
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from deepsiam.data_prep.common import streams

OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
OF_PATHS = (errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS)
LONGEST_LINE = 2000  # characters
SHARED_MEMORY = "/dev/shm"  # where Python and torch keep what processes share


class InputError(Exception):
    """Bad input. The message is one line: what is wrong, where (file, line or key), what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class StoppedError(InputError):
    """Not bad input: the system stopped the work (disk full, no permission, a worker killed). It can be resumed."""


class CacheError(StoppedError):
    """The cache of shards has no room or cannot be written; nothing is wrong with the data."""


class CutOffError(InputError):
    """A file ends early; everything read before that is sound."""


class FailedImportError(InputError):
    """A user's module raised an exception, the cause of this one, as it was imported."""


def printable(text: str) -> str:
    """Return `text` as one line without terminal control: white space becomes single blanks, controls are escaped.

    Of a longer line than LONGEST_LINE, as of a foreign id in it, the middle is left out.
    """
    return without_controls(" ".join(text.split()))


def without_controls(line: str) -> str:
    """Return a line with its blanks, as of a table, and its controls escaped; a line that is too long is cut."""
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def did_you_mean(word: str, names: Iterable[str], *, prefix: str = "", cutoff: float = 0.6) -> str:
    """Return `; did you mean PREFIX...?` with the nearest of the known names; "" if none is near."""
    matches = difflib.get_close_matches(word, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""


@contextmanager
def exit_on_input_error(prefix: str) -> Iterator[None]:
    """Exit with one line on stderr, `PREFIX: message`: code 2 on an InputError or a bad path, 130 on Ctrl-C.

    When the reader of stdout is gone (`| head`), exit silently with 141, the code of a command that SIGPIPE ends.
    """
    streams.set_up()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_stdout()
        raise SystemExit(141) from None
    except InputError as error:
        if isinstance(error, FailedImportError):
            traceback.print_exception(error.__cause__)
        print(f"{prefix}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if error.filename is None and error.errno in OF_DISKS:
            print(f"{prefix}: {error.strerror}, in a file without a name{_without_room()}", file=sys.stderr)
            raise SystemExit(2) from None
        if error.filename == streams.STDOUT:
            _leave_stdout()
            print(f"{prefix}: cannot write the output: {error.strerror}", file=sys.stderr)
            raise SystemExit(2) from None
        if error.filename is None or error.errno not in OF_PATHS:
            raise
        print(f"{prefix}: {printable(str(error.filename))}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"{prefix}: interrupted; run the same command to continue", file=sys.stderr)
        raise SystemExit(130) from None


@contextmanager
def as_input_error(where: str) -> Iterator[None]:
    """Turn ValueErrors, such as the models', into InputErrors that name the recipe's section or the file at fault."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def _without_room() -> str:
    """Return where a library, which does not name its temporary file, can have found no room."""
    folders = {SHARED_MEMORY, tempfile.gettempdir(), os.getcwd()}
    full_folders = [
        folder for folder in sorted(folders) if os.path.isdir(folder) and shutil.disk_usage(folder).free < 1 << 20
    ]
    return f": make room in {' and '.join(full_folders)}" if full_folders else ""


def _leave_stdout() -> None:
    """Send what is left of the output nowhere: Python would print an error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
