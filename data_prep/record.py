"""What a source yields beside documents: records that are damaged, and records it leaves out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bad:
    """A record that cannot be read: where it stands (`line 12`, `page 17 at byte 3,400`) and what is wrong."""

    file: str
    where: str
    reason: str


@dataclass(frozen=True)
class Dropped:
    """A sound record that the source leaves out, by reason (`redirect`, `deleted`, `bot`): counted, not named."""

    reason: str
