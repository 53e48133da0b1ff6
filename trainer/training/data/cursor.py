"""The position of a run in its data, recorded when data is consumed, so prefetching loses and repeats nothing.

The loop advances it after each step; a checkpoint stores it, and a resumed run's loader starts from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field, PlainSerializer

from deepsiam.data_prep.common.json_file import Count
from deepsiam.trainer.training.data.lanes import Skip
from deepsiam.trainer.training.data.order import LaneBatch, Positions

MicroSize = Annotated[int, Field(ge=1, lt=2**31)]


@dataclass
class Cursor:
    """How many global micro-batches were taken, every lane's position after them, and the shards that any rank skipped.

    A rank moves only the lanes that it serves; `merged` combines the cursors of all ranks. `micro_sizes` maps a step
    to the number of examples in a micro-batch from that step on.
    """

    positions: Positions
    micro_batches: Count = 0
    skips: Annotated[set[Skip], PlainSerializer(sorted)] = field(default_factory=set)
    micro_sizes: Mapping[Count, MicroSize] = field(default_factory=dict)

    @property
    def micro(self) -> int:
        """The number of examples in the last micro-batch."""
        return self.micro_sizes[max(self.micro_sizes)]

    def with_micro(self, size: int, step: int) -> Cursor:
        """Return the position that continues after a step with micro-batches of `size`; itself for the same size.

        Every lane stays where it is, so no example is lost or repeated; micro-batches are numbered as if all earlier
        ones had this size.
        """
        if size == self.micro:
            return self
        number = self.micro_batches * self.micro // size  # exact: both sizes divide batch.size, which never changes
        return replace(self, micro_batches=number, micro_sizes={**self.micro_sizes, step: size})

    @property
    def bad_shards(self) -> int:
        """How many different shards were skipped, in any epoch."""
        return len({(skip.source, skip.shard) for skip in self.skips})

    def advance(self, batches: Sequence[LaneBatch], micro_batches: int) -> None:
        """Record that this rank consumed `batches`; the step has `micro_batches` over all ranks."""
        for batch in batches:  # taken from the batch, not from a reader: workers have read further ahead
            self.positions[batch.source][batch.lane] = batch.end
        self.micro_batches += micro_batches

    @staticmethod
    def merged(cursors: Sequence[Cursor]) -> Cursor:
        """Combine the cursors of all ranks, in rank order: lane v is taken from rank v mod the number of ranks."""
        # only positions differ: all ranks count the same micro-batches, and tell each other the shards that they skip
        positions = [
            [cursors[lane % len(cursors)].positions[source][lane] for lane in range(len(lanes))]
            for source, lanes in enumerate(cursors[0].positions)
        ]
        return replace(cursors[0], positions=positions)
