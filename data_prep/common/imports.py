"""Import large packages faster, in a module that is run as a command."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Import without the garbage collector: nearly all that an import makes stays until the process ends.

    Looking for garbage takes an eighth of the time to import torch, DeepSpeed and transformers. Afterwards the
    collector leaves everything alone that is there by then, so that it has less to look through later, too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
