"""Keep torch's compiler out of a process that compiles nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from data_prep.common.environment import variable

SWITCH = "TORCHDYNAMO_DISABLE"  # torch reads this variable at every use of torch.compile


@contextmanager
def without_compiler() -> Iterator[None]:
    """Make torch.compile return functions unchanged.

    To check an optimizer of any kind, DeepSpeed imports its own Muon. Muon decorates functions with torch.compile,
    which would import the whole compiler: two seconds of CPU time on every rank, for functions that no run calls.
    """
    with variable(SWITCH, "1"):
        yield
