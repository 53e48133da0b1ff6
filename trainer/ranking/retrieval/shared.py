"""Batches that several ranks work on together: each rank computes its share, and all of them get all results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

import torch.distributed as dist

Batch = TypeVar("Batch")
Result = TypeVar("Result")
_ranks: ContextVar[tuple[int, int]] = ContextVar("ranks", default=(0, 1))  # this rank, the number of ranks


@contextmanager
def shared_by(rank: int, ranks: int) -> Iterator[None]:
    """Let all ranks encode and score the same texts, in the same order, together within the block."""
    token = _ranks.set((rank, ranks))
    try:
        yield
    finally:
        _ranks.reset(token)


def computed(batches: Iterable[Batch], compute: Callable[[Batch], Result]) -> Iterator[tuple[Batch, Result]]:
    """Yield each batch with its result, in order; within `shared_by`, each rank computes every `ranks`-th batch.

    Neither a batch nor its result depends on the number of ranks.
    """
    rank, ranks = _ranks.get()
    left = iter(batches)
    while of_round := list(islice(left, ranks)):
        own = compute(of_round[rank]) if rank < len(of_round) else None
        yield from zip(of_round, _gather(own, ranks), strict=False)


def _gather(own: Any, ranks: int) -> list[Any]:
    """Return the results of all ranks."""
    if ranks == 1:
        return [own]
    results = [None] * ranks
    dist.all_gather_object(results, own)
    return results
