"""Where a run stands in its data: recorded when consumed, so that prefetching loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.lanes import Position, Skip
from trainer.order import LaneBatch, Positions


@dataclass
class Cursor:
    """Global micro-batches taken, every lane's position after them, and the shards that any rank had to skip.

    On a rank only the lanes that it serves move; `merged` brings those of all ranks together.
    """

    positions: Positions
    micro_batches: int = 0
    skips: set[Skip] = field(default_factory=set)

    @property
    def bad_shards(self) -> int:
        """How many shards had to be skipped, in whatever epochs."""
        return len({(skip.source, skip.shard) for skip in self.skips})

    def advance(self, batches: Sequence[LaneBatch], micro_batches: int) -> None:
        """Record that this rank's `batches`, of a step of so many micro-batches over all ranks, are done with."""
        for batch in batches:
            self.positions[batch.source][batch.lane] = batch.after
        self.micro_batches += micro_batches

    @staticmethod
    def merged(cursors: Sequence[Cursor]) -> Cursor:
        """The cursor of all ranks from that of each: lane v is served by rank v mod their number."""
        positions = [
            [cursors[lane % len(cursors)].positions[source][lane] for lane in range(len(lanes))]
            for source, lanes in enumerate(cursors[0].positions)
        ]
        return Cursor(positions, cursors[0].micro_batches, cursors[0].skips)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"micro_batches": self.micro_batches, "positions": self.positions, "skips": sorted(self.skips)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cursor:
        """From what `to_json` gave."""
        positions = [[Position(*position) for position in lanes] for lanes in values["positions"]]
        return cls(positions, values["micro_batches"], {Skip(*skip) for skip in values["skips"]})
