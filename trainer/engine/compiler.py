"""Leave torch's compiler out of a process that compiles nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH = "TORCHDYNAMO_DISABLE"  # torch reads it at every use of torch.compile


@contextmanager
def without_compiler() -> Iterator[None]:
    """Make torch.compile return functions as they are.

    To check an optimizer, of any kind, DeepSpeed imports its own Muon. That decorates functions with torch.compile,
    which would import the whole compiler: two seconds of CPU time on every rank, for functions that no run calls.
    """
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
