"""The machines of a plan: everything about them that is assumed, in one place."""

from dataclasses import dataclass

from deepsiam.trainer.cluster.planning.communication import Backend, Link, Network
from deepsiam.trainer.cluster.planning.compute import MeasuredSpeed
from deepsiam.trainer.cluster.planning.roofline import Roofline
from deepsiam.trainer.training.engine.hardware import Device

OVERLAP = {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.5}  # by stage: DeepSpeed's `overlap_comm` is off below stage 3


@dataclass(frozen=True)
class Machines:
    """Hosts of one kind; rates are in bytes a second, times in seconds."""

    gpus: int  # of a host, one rank each
    device: Device
    speed: Roofline | MeasuredSpeed
    between: Link  # from a host to the others
    within: Link  # from a rank to the others of its host
    backend: Backend
    overlap: float | None  # the share of communication that may overlap with compute; None: as OVERLAP
    disk: float  # at which a host reads shards

    def network(self, ranks: int) -> Network:
        """Return the network of whole hosts."""
        return Network(ranks // self.gpus, self.gpus, self.between, self.within, self.backend)

    def overlap_of(self, stage: int) -> float:
        """Return the share of a stage's communication that may overlap with compute."""
        return OVERLAP[stage] if self.overlap is None else self.overlap
