"""The parts of webdataset that work on text, imported without torch.

`import webdataset` looks for torch, which only its data loaders need; found, it would cost each of our worker processes
seconds and 190 MB. The modules are not kept in sys.modules, so whoever imports webdataset later gets all of it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hidden_torch() -> Iterator[None]:
    """Make `import torch` fail in the block, and forget the webdataset imported there, unless either is loaded."""
    if {"torch", "webdataset"} & set(sys.modules):
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "torch" or name.split(".")[0] == "webdataset"]:
            del sys.modules[name]


with _hidden_torch():
    from webdataset.shardlists import expand_urls
    from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander
    from webdataset.writer import TarWriter

__all__ = ["TarWriter", "base_plus_ext", "expand_urls", "group_by_keys", "tar_file_expander"]
