"""The machines of a plan: everything about them that is assumed, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.planning.communication import Backend, Link, Network
from trainer.planning.compute import Speed
from trainer.planning.hardware import Device

OVERLAP = {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.5}  # by stage: DeepSpeed's `overlap_comm` is off below stage 3


@dataclass(frozen=True)
class Machines:
    """Hosts of one kind; bytes a second, and seconds."""

    gpus: int  # of a host: its ranks
    device: Device
    speed: Speed
    between: Link  # of a host to the others
    within: Link  # of a rank to those of its host
    backend: Backend
    overlap: float | None  # the share of communication that may run beside compute; None: as OVERLAP
    disk: float  # what a host reads shards with
    storage: float  # what all ranks together write checkpoints with
    writer: float  # what one rank writes them with, hashing included
    mtbf: float  # of a host
    restart: float  # from a failure until the first new step
    repair: float  # until a failed host is back; 0: a spare one takes its place

    def network(self, ranks: int) -> Network:
        """Return the fewest hosts that share the ranks evenly."""
        hosts = -(-ranks // self.gpus)
        while ranks % hosts:
            hosts += 1
        return Network(hosts, ranks // hosts, self.between, self.within, self.backend)

    def overlap_of(self, stage: int) -> float:
        """The share of a stage's communication that may run beside compute."""
        return OVERLAP[stage] if self.overlap is None else self.overlap
