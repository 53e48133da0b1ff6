"""Micro-batches of one rank, prefetched by worker processes that share its lanes.

The loop takes a step's micro-batches from it; the workers make the next ones while the engine computes.
"""

import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.workers import shared_memory_errors
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import Position
from deepsiam.trainer.training.data.order import LaneBatch, Order


class Loader:
    """Make a rank's micro-batches in the order of the run, in the rank itself or in `workers` processes.

    Where Python forks its processes (on Linux, before 3.14), workers share the rank's memory pages, torch included, and
    import nothing themselves. The code that they run, sources and batchers, uses only numpy.
    """

    def __init__(self, order: Order, rank: int, world_size: int, workers: int):
        self.order, self.rank, self.world_size, self.workers = order, rank, world_size, workers

    def micro_batches(self, cursor: Cursor) -> Iterator[LaneBatch]:
        """Yield the rank's micro-batches from the cursor on, without end; raise InputError if data cannot be read.

        These are the global micro-batches `taken + rank`, `taken + rank + world_size`, ..., where `taken` is the number
        recorded in the cursor. Shards that the cursor has as skipped stay so, even if they have been repaired since.
        """
        self.order.skip(cursor.skips)
        positions = [list(lanes) for lanes in cursor.positions]
        stream = _RankStream(self.order, positions, cursor.micro_batches + self.rank, self.world_size)
        batches: Iterable[LaneBatch | InputError] = stream
        if self.workers:
            loader = DataLoader(
                stream,
                batch_size=None,  # the stream makes whole micro-batches: nothing to collate
                num_workers=self.workers,
                collate_fn=_unchanged,  # PyTorch's own would make tensors
                worker_init_fn=_ignore_signals,
                prefetch_factor=4,
            )
            with shared_memory_errors("data.workers=0"):
                batches = iter(loader)
        for batch in batches:
            if isinstance(batch, InputError):
                raise batch
            yield batch


def check_layout(lanes: int, micro_batches: int, world_size: int, workers: int) -> None:
    """Raise InputError if ranks or workers cannot share the lanes, or the micro-batches of a step, evenly."""
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


class _RankStream(IterableDataset[LaneBatch | InputError]):
    """Micro-batches w, w + n, ... of the rank, from worker w of n; the loader takes from the workers in rotation."""

    def __init__(self, order: Order, positions: Sequence[Sequence[Position]], start: int, world_size: int):
        self.order, self.positions, self.start, self.world_size = order, positions, start, world_size

    def __iter__(self) -> Iterator[LaneBatch | InputError]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        first_index = self.start + number * self.world_size
        try:
            yield from self.order.stream(self.positions, first_index, workers * self.world_size)
        except InputError as error:  # yielded: an error raised in a worker would carry that process's traceback
            yield error


# functions of the module: where Python starts workers anew (since 3.14), it finds these by their names
def _unchanged(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    # the launcher signals the whole process tree; a worker that exits first would prevent the rank's last save
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
