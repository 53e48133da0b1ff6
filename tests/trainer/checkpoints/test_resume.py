"""Resuming with another number of ranks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.checkpoints import checkpoint


def test_the_converted_checkpoint_stays_until_every_rank_has_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from rank 0 of 2, which removes it: another rank reads until it gathers."""
    universal, events = tmp_path / "universal" / "step-00000007", []

    class Engine(SimpleNamespace):
        world = SimpleNamespace(rank=0, size=2)

        def load(self, folder: Path, tag: str, *, universal: bool) -> None:
            events.append(("load", (folder / tag).is_dir()))

        def gather(self, value: Any) -> list[Any]:
            events.append(("gather", universal.is_dir()))
            return [value] * self.world.size

    monkeypatch.setattr(checkpoint, "_convert", lambda source, universal: universal.mkdir(parents=True))
    checkpoint.resume(Engine(), tmp_path / "checkpoints" / "step-00000007", 3)  # type: ignore[arg-type]
    loaded = events.index(("load", True))
    assert ("gather", True) in events[loaded:]
    assert not universal.parent.exists()
