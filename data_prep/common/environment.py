"""Set an environment variable temporarily."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable inside the block; restore it afterwards."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
