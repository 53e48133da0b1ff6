"""End all that a launcher has started on this host: the processes of its session."""

import os
import time
from contextlib import suppress

import psutil


def kill(session: int) -> list[int]:
    """Kill the remaining processes of a session; return those that cannot be killed, if any."""
    for _ in range(300):
        remaining = processes(session)
        if not remaining:
            return []
        for process in remaining:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.1)  # psutil's own wait would reap the launcher, and lose its exit code
    return [process.pid for process in remaining]


def processes(session: int) -> list[psutil.Process]:
    """The living processes of a session."""
    living = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                living.append(process)
    return living
