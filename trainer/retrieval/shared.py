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
_ranks: ContextVar[tuple[int, int]] = ContextVar("ranks", default=(0, 1))  # this one, how many


@contextmanager
def shared_by(rank: int, ranks: int) -> Iterator[None]:
    """Within the block all ranks encode and score the same texts, in the same order, together."""
    token = _ranks.set((rank, ranks))
    try:
        yield
    finally:
        _ranks.reset(token)


def computed(batches: Iterable[Batch], compute: Callable[[Batch], Result]) -> Iterator[tuple[Batch, Result]]:
    """Yield each batch with its result, in order; a rank computes every `ranks`-th one, outside `shared_by` each.

    A batch is the same whatever the number of ranks, and so is its result.
    """
    rank, ranks = _ranks.get()
    left = iter(batches)
    while of_round := list(islice(left, ranks)):
        own = compute(of_round[rank]) if rank < len(of_round) else None
        yield from zip(of_round, _gather(own, ranks), strict=False)


def _gather(own: Any, ranks: int) -> list[Any]:
    """The result of each rank."""
    if ranks == 1:
        return [own]
    results = [None] * ranks
    dist.all_gather_object(results, own)
    return results
