"""What several ranks do together: compute batches, of which each computes its share; make and search an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from deepsiam.trainer.ranking.retrieval.search import Ranked, merged, packed
from deepsiam.trainer.training.engine.device import this_device

NOTHING = Ranked(np.empty(0, np.int64), np.empty(0, np.float32))
Batch = TypeVar("Batch")
Result = TypeVar("Result")
_beat: ContextVar[Callable[[], None]] = ContextVar("beat", default=lambda: None)
_ranks: ContextVar[tuple[int, int]] = ContextVar("ranks", default=(0, 1))  # this rank, the number of ranks


@contextmanager
def shared_by(rank: int, ranks: int, beat: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let all ranks encode and score the same texts, in the same order, together within the block.

    `beat` is called after every batch.
    """
    tokens = _ranks.set((rank, ranks)), _beat.set(beat)
    try:
        yield
    finally:
        _ranks.reset(tokens[0])
        _beat.reset(tokens[1])


def compute_my_batches(batches: Iterable[Batch], compute: Callable[[Batch], Result]) -> Iterator[tuple[Batch, Result]]:
    """Yield each batch with its result, in order; within `shared_by`, each rank computes every `ranks`-th batch.

    Neither a batch nor its result depends on the number of ranks. A rank with no batch left computes one that is not
    used: under ZeRO-3 a forward pass needs every rank.
    """
    (rank, ranks), beat = _ranks.get(), _beat.get()
    remaining = iter(batches)
    while my_round := list(islice(remaining, ranks)):
        results: list[Any] = [compute(my_round[rank % len(my_round)])] * ranks
        if ranks > 1:
            dist.all_gather_object(results, results[rank])
        beat()
        yield from zip(my_round, results, strict=False)


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


def merge(ranked: list[Ranked], k: int, rank: int, ranks: int) -> list[Ranked] | None:
    """Merge the rankings that each rank has for the same queries; all ranks must call this.

    Rank 0 gets the k best documents of each query, the others get None. Ties are in the order of the documents, so that
    the result does not depend on the number of ranks.
    """
    if ranks == 1:
        return ranked
    keys = torch.from_numpy(packed(ranked, k).view(np.int64)).to(this_device())
    parts = [torch.empty_like(keys) for _ in range(ranks)] if rank == 0 else None
    dist.gather(keys, parts)
    return merged(torch.cat(parts, dim=1).cpu().numpy().view(np.uint64), k) if parts else None


def split_queries_by_rank(find: Callable[[slice], list[Ranked]], queries: int, rank: int, ranks: int) -> list[Ranked]:
    """Share out a number of queries instead of blocks, where an index cannot be sharded.

    `find` ranks the queries of a slice; those of other ranks get empty rankings.
    """
    ranked = [NOTHING] * queries
    ranked[rank::ranks] = find(slice(rank, None, ranks)) if rank < queries else []
    return ranked
