"""The position of a run in its data, recorded when data is consumed: prefetching loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.data.lanes import Position, Skip
from trainer.data.order import LaneBatch, Positions


@dataclass
class Cursor:
    """How many global micro-batches were taken, every lane's position after them, and the shards that any rank skipped.

    A rank moves only the lanes that it serves; `merged` combines the cursors of all ranks.
    """

    positions: Positions
    micro_batches: int = 0
    skips: set[Skip] = field(default_factory=set)

    @property
    def bad_shards(self) -> int:
        """How many different shards were skipped, in any epoch."""
        return len({(skip.source, skip.shard) for skip in self.skips})

    def advance(self, batches: Sequence[LaneBatch], micro_batches: int) -> None:
        """Record that this rank consumed `batches`, of a step of `micro_batches` over all ranks."""
        for batch in batches:
            self.positions[batch.source][batch.lane] = batch.after
        self.micro_batches += micro_batches

    @staticmethod
    def merged(cursors: Sequence[Cursor]) -> Cursor:
        """Combine the cursors of all ranks, by rank: lane v is that of rank v mod their number."""
        positions = [
            [cursors[lane % len(cursors)].positions[source][lane] for lane in range(len(lanes))]
            for source, lanes in enumerate(cursors[0].positions)
        ]
        return Cursor(positions, cursors[0].micro_batches, cursors[0].skips)

    def to_json(self) -> dict[str, Any]:
        """Return the cursor as plain values."""
        return {"micro_batches": self.micro_batches, "positions": self.positions, "skips": sorted(self.skips)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cursor:
        """Build a cursor from the values of `to_json`."""
        positions = [[Position(*position) for position in lanes] for lanes in values["positions"]]
        return cls(positions, values["micro_batches"], {Skip(*skip) for skip in values["skips"]})
