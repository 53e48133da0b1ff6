"""The launcher that started this rank: the rank ends with it, even while it imports or waits for others.

`trainer` imports this file before all others, whose imports take seconds: a launcher may end meanwhile, too.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deepsiam.trainer.training.launchers import LAUNCHERS

LOCAL_RANK = {names[2] for names in LAUNCHERS}  # a launcher sets one of these variables
DEEPSPEED_VARIABLE = "CROSS_SIZE"  # its launcher alone sets this
HOST_LAUNCHER = "deepspeed.launcher.launch"  # DeepSpeed's, of the ranks of one host
WORKER = "--multiprocessing-fork"  # on the command line of a rank's worker process, which ends by itself
SHELLS = {"sh", "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "tcsh", "zsh"}  # may end before what they start
POLL_SECONDS = 0.5
MISSED = -1  # the id of no process: a launcher had ended before this process could note it

_watched: list[int] = []  # this process's parent, and the parent's
_released = threading.Event()


def gone() -> bool:
    """Return whether a launcher has ended: that of this host, or the `deepspeed` that started it."""
    return any(parent != still for parent, still in zip(_watched, _ancestors(), strict=False))


def release() -> None:
    """Stop ending this process with its launcher: the training loop does so from now on, after a save."""
    _released.set()


def _note() -> None:
    """Note which processes to watch: launchers, but no shells."""
    _watched.clear()
    if WORKER in sys.orig_argv or not any(name in os.environ for name in LOCAL_RANK):
        return
    parent, grandparent, *_ = *_ancestors(), 0, 0
    of_host = HOST_LAUNCHER in _words(parent)
    if (
        _is_adopted(parent, grandparent)
        if of_host
        else DEEPSPEED_VARIABLE in os.environ and _is_adopted(os.getpid(), parent)
    ):
        _watched.append(MISSED)
    elif _program(parent) not in SHELLS:
        _watched.append(parent)
        if of_host and _program(grandparent).startswith("python"):
            _watched.append(grandparent)


def _watch() -> None:
    """End this process once a launcher has ended, in a thread of its own: the main thread may import or wait."""
    while not _released.wait(POLL_SECONDS):
        if gone():
            with suppress(OSError):  # the launcher may have been the reader
                if any(os.environ.get(name) == "0" for name in LOCAL_RANK):
                    print("the launcher has ended: its ranks end, too", file=sys.stderr, flush=True)
            os._exit(1)


def _ancestors() -> Iterator[int]:
    """Yield the ids of the parent of this process and of that one's, where the system tells it (Linux)."""
    yield (parent := os.getppid())
    with suppress(OSError, ValueError):
        status = Path(f"/proc/{parent}/stat").read_bytes()
        yield int(status.rpartition(b")")[2].split()[1])  # after the name, which may have blanks and brackets


def _is_adopted(process: int, parent: int) -> bool:
    # its parent is in another session than the one that started it
    with suppress(OSError):
        return os.getsid(process) not in (process, os.getsid(parent))
    return False


def _program(process: int) -> str:
    return Path((_words(process) or [""])[0]).name.removeprefix("-")  # of a login shell


def _words(process: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


_note()
os.register_at_fork(after_in_child=_note)
if _watched:
    threading.Thread(target=_watch, name="launcher", daemon=True).start()
