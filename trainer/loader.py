"""Micro-batches of one rank, made ahead of need by worker processes that share out its lanes."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from data_prep.errors import InputError
from trainer.lanes import Position
from trainer.order import LaneBatch, Order


class _RankStream(IterableDataset[LaneBatch | InputError]):
    """Worker w of n makes the rank's micro-batches w, w + n, ...; the loader takes from the workers in turn."""

    def __init__(self, order: Order, positions: Sequence[Sequence[Position]], first: int, world_size: int):
        self.order, self.positions, self.first, self.world_size = order, positions, first, world_size

    def __iter__(self) -> Iterator[LaneBatch | InputError]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        first = self.first + number * self.world_size
        try:
            yield from self.order.stream(self.positions, first, workers * self.world_size)
        except InputError as error:  # as a value: raised in a worker, it would come with that process's traceback
            yield error


def check_layout(lanes: int, micro_batches: int, world_size: int, workers: int) -> None:
    """Refuse a cluster among which the lanes, or the micro-batches of a step, cannot be shared out evenly."""
    if lanes % world_size:
        raise InputError(
            f"data.lanes: {lanes} lanes cannot be shared by {world_size} ranks: use a number of ranks that divides it"
        )
    if micro_batches % world_size:
        raise InputError(
            f"batch: {micro_batches} micro-batches a step cannot be shared by {world_size} ranks: "
            f"change batch.micro so that batch.size / batch.micro is a multiple of {world_size}"
        )
    if workers and lanes % (world_size * workers):
        raise InputError(
            f"data.workers: {lanes} lanes cannot be shared by {world_size} ranks x {workers} workers: "
            f"data.workers must divide {lanes // world_size}"
        )


def rank_micro_batches(
    order: Order, positions: Sequence[Sequence[Position]], first: int, rank: int, world_size: int, workers: int
) -> Iterator[LaneBatch]:
    """The micro-batches `first + rank`, `first + rank + world_size`, ... in order, for ever.

    `positions` are those of all lanes of all sources after micro-batch `first - 1` of the whole run. Raises InputError
    where data cannot be read.
    """
    dataset = _RankStream(order, [list(lanes) for lanes in positions], first + rank, world_size)
    made: Iterable[LaneBatch | InputError] = dataset
    if workers:
        made = DataLoader(
            dataset,
            batch_size=None,
            num_workers=workers,
            collate_fn=_unchanged,
            worker_init_fn=_ignore_signals,
            prefetch_factor=4,
        )
    for batch in made:
        if isinstance(batch, InputError):
            raise batch
        yield batch


def _unchanged(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    # the launcher signals the whole process tree; a worker that dies first would take the rank's last save with it
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
