"""Read the documents of shards, chunk by chunk, for the lanes of a pre-training run.

The lanes call `read` whenever they begin a window, in the loader's workers, long before the step that uses it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard

if TYPE_CHECKING:
    from deepsiam.data_prep.shards.remote_folder import Cache

RETRIES = (1.0, 5.0)  # seconds before retrying to read a shard: a file system may fail for a moment


class ShardSource:
    """The documents of a folder of shards, or of a remote folder through a cache.

    Every shard is checked against the manifest before its first chunk is read.
    """

    def __init__(self, folder: Manifest | Cache):
        self.cache = None if isinstance(folder, Manifest) else folder
        self.manifest = folder if isinstance(folder, Manifest) else folder.manifest
        self.chunks: Sequence[int] = [entry.chunks for entry in self.manifest.shards]
        self._open: dict[int, Shard] = {}

    def read(self, shard: int, chunk: int) -> list[TokenDocument]:
        """Return the documents of one chunk; raise InputError naming a shard that differs from its manifest."""
        for delay in () if self.cache else RETRIES:  # the cache has retries of its own
            try:
                return self._shard(shard).read(chunk)
            except InputError as error:
                print(f"{error}; trying again in {delay:.0f} s", file=sys.stderr, flush=True)
                self._open.pop(shard, None)
                time.sleep(delay)
        return self._shard(shard).read(chunk)

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Download shards that will be read soon, in the background."""
        if self.cache:
            self.cache.fetch_ahead(shards)

    def release(self, shard: int) -> None:
        """Close a shard that has been read to its end."""
        if self._open.pop(shard, None) and self.cache:
            self.cache.release(shard)

    def check(self, shard: int) -> None:
        """Open and close a shard; raise InputError where it has not the bytes of the manifest."""
        self._shard(shard)
        self.release(shard)

    def cached_bytes(self, shards: int) -> int:
        """Return the bytes that the `shards` largest shards take in the cache; 0 without one."""
        return sum(sorted(entry.bytes for entry in self.manifest.shards)[-shards:]) if self.cache else 0

    def name(self, shard: int, chunk: int, item: int) -> str:
        """Return the names of the shard's file and the document, and the number of its chunk."""
        opened = self._shard(shard)
        return f"{opened.path.name} chunk {chunk} document {item} ({opened.read(chunk)[item].id})"

    def _shard(self, shard: int) -> Shard:
        if shard not in self._open:
            self._open[shard] = self.cache.open(shard) if self.cache else Shard.open(self.manifest, shard)
        return self._open[shard]
