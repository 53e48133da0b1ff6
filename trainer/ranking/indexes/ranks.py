"""Ranks that make or search an index together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist

from trainer.ranking.retrieval.search import Ranked, merged, packed
from trainer.training.engine.device import this_device

NOTHING = Ranked(np.empty(0, np.int64), np.empty(0, np.float32))


def wait_for(ranks: int) -> None:
    """Wait until all ranks have called this."""
    if ranks > 1:
        dist.barrier()


@contextmanager
def rank_0_first(rank: int, ranks: int) -> Iterator[None]:
    """Run a block on rank 0, then on the others: its error is printed once, because the launcher ends the others."""
    if rank:
        wait_for(ranks)
    yield
    if not rank:
        wait_for(ranks)


def merge(found: list[Ranked], k: int, rank: int, ranks: int) -> list[Ranked] | None:
    """Merge what each rank has found for the same queries; all ranks must call this.

    Rank 0 gets the k best documents of each query, the others get None. Ties are in the order of the documents, so that
    the result does not depend on the number of ranks.
    """
    if ranks == 1:
        return found
    keys = torch.from_numpy(packed(found, k).view(np.int64)).to(this_device())
    parts = [torch.empty_like(keys) for _ in range(ranks)] if rank == 0 else None
    dist.gather(keys, parts)
    return merged(torch.cat(parts, dim=1).cpu().numpy().view(np.uint64), k) if parts else None


def each_its_queries(find: Callable[[slice], list[Ranked]], queries: int, rank: int, ranks: int) -> list[Ranked]:
    """Share out queries instead of blocks, where an index cannot be sharded; other ranks' queries get empty rankings.

    Args:
        find: ranks the queries of a slice.
        queries: the number of queries.
        rank: this rank.
        ranks: the number of ranks.
    """
    found = [NOTHING] * queries
    found[rank::ranks] = find(slice(rank, None, ranks)) if rank < queries else []
    return found
