"""A bound on the whole time of a connection: a socket's own timeout begins anew with every byte that arrives."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def deadline(connection: socket.socket, seconds: float) -> Iterator[threading.Timer]:
    """Shut a connection down if the block has not ended in time; the yielded timer can be cancelled before.

    Raises:
        TimeoutError: the time was over.
    """
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):  # it has been closed
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()
        if over.is_set():
            raise TimeoutError
