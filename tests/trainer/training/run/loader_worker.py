"""A rank that ends by `exit` or by an `error` while its loader worker ignores the launcher's signal."""

import multiprocessing
import signal
import sys
from multiprocessing.synchronize import Event

from deepsiam.trainer.training.run import command


def work(ready: Event) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    while True:
        signal.pause()


if __name__ == "__main__":
    command.has_joined = lambda: True
    with command.skip_interpreter_shutdown():
        ready = multiprocessing.Event()
        multiprocessing.Process(target=work, args=(ready,), daemon=True).start()
        ready.wait()
        raise SystemExit(3) if sys.argv[1] == "exit" else ZeroDivisionError("division by zero")
