"""The room that the cache of a host needs: all shards that its ranks keep open at once must fit.

Checked once, before the first step, where shards are remote.
"""

from collections.abc import Sequence

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.data.order import Order


def check_cache_room(
    order: Order, held_out: Sequence[HeldOut], limit: int, *, world_size: int, local_size: int, workers: int
) -> None:
    """Raise InputError if the cache, of `limit` bytes, cannot hold what the ranks of a host keep open at once.

    Every lane keeps a shard of each source open between its windows. A rank, or each of its `workers`, reads one window
    at a time, and keeps all shards of it open. A validation adds a window of each rank.
    """
    lanes, readers = order.lanes * local_size // world_size, local_size * max(1, workers)
    needed = 0
    for source in order.sources.values():
        # one shard of each window is the one that its lane keeps open anyway
        in_a_window = most_in_a_window(source.source.chunks, source.window)
        needed += source.source.cached_bytes(lanes + readers * (in_a_window - 1))
    for part in held_out:
        needed += part.source.cached_bytes(local_size * most_in_a_window(part.source.chunks, part.window))
    if needed > limit:
        raise InputError(
            f"data.cache_bytes: {limit} bytes cannot hold what the {lanes} lanes of a host"
            f"{' and a validation' if held_out else ''} keep open at once; set at least {needed}, or twice that to "
            "fetch ahead"
        )


def most_in_a_window(chunks: Sequence[int], window: int) -> int:
    """Return the most shards, with these numbers of chunks, that `window` consecutive chunks can touch.

    The first and the last shard may be touched in one chunk; those between are whole.
    """
    between = int(np.cumsum(np.sort(chunks)).searchsorted(window - 2, side="right"))
    return min(window, between + 2, len(chunks))
