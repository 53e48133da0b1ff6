"""Import large packages faster in a module that runs as a command."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Import without the garbage collector: nearly all objects that an import creates live until the process ends.

    Looking for garbage takes an eighth of the time to import torch, DeepSpeed and transformers. Afterwards all existing
    objects are frozen, so that later collections have less to look through, too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
