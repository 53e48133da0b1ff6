"""DeepSpeed's collectives, replaced while something is measured."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import deepspeed.comm.comm

COLLECTIVES = ("all_reduce", "reduce", "reduce_scatter_tensor", "all_gather", "all_gather_into_tensor", "broadcast")
Call = Callable[..., Any]


@contextmanager
def replace_collectives(wrap: Callable[[Call], Call]) -> Iterator[None]:
    """Replace each collective that DeepSpeed calls by what `wrap` makes of it."""
    backend = deepspeed.comm.comm.cdb
    with ExitStack() as replaced:
        for name in COLLECTIVES:
            replaced.enter_context(patch.object(backend, name, wrap(getattr(backend, name))))
        yield
