"""Measure how fast each host's messages reach its neighbours."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from trainer.engine.world import World

MESSAGE_BYTES = 1 << 18


class Ring:
    """The hosts in a ring, each by its first rank: messages go once around it in either direction."""

    def __init__(self, world: World, first_ranks: Sequence[int], device: torch.device) -> None:
        """Take the first rank of every host; needs two hosts or more."""
        self.ranks, self.device = list(first_ranks), device
        self.host = self.ranks.index(world.rank) if world.rank in self.ranks else None

    def measure(self) -> torch.Tensor:
        """Return the seconds of a message from the host before, and from the host after, of each host: fp64 [hosts, 2].

        Only the row of this rank's host is not zero, and none of another than a first rank. All first ranks call.
        """
        seconds = torch.zeros(len(self.ranks), 2, dtype=torch.float64)
        if self.host is None:
            return seconds
        for column, step in enumerate((1, -1)):
            to, source = (self.ranks[(self.host + way) % len(self.ranks)] for way in (step, -step))
            seconds[self.host, column] = self._exchange(to, source)
        return seconds

    def _exchange(self, to: int, source: int) -> float:
        """Send a message to a rank, and return the seconds until one from another rank is here."""
        out, into = torch.empty(2, MESSAGE_BYTES, dtype=torch.uint8, device=self.device).unbind()
        began = time.perf_counter()
        sent, *received = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
        )
        for work in received:  # NCCL has one work for both
            work.wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        sent.wait()
        return seconds
