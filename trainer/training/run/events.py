"""A run's TensorBoard events, in an order that no host's clock decides.

The monitor writes through it when a step reports; the pages and plots of a run read what it wrote.
"""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from torch.utils.tensorboard import SummaryWriter

SECONDS = re.compile(r"events\.out\.tfevents\.(\d+)\.")  # in the name of a file


def open_events(folder: Path, purge_step: int) -> SummaryWriter:
    """Open a new file of events in a folder; readers discard what earlier files have from `purge_step` on.

    Readers take the files in the order of their names, which begin with the second when each was opened. If a clock
    went back, or another host with a slower one took the run over, the new file would be read before the older ones,
    and its steps be discarded: so it is named at least one second after the newest.
    """
    named = (SECONDS.match(file.name) for file in folder.glob("events.out.tfevents.*"))
    later = max((int(name[1]) + 1 for name in named if name), default=0)
    clock = SimpleNamespace(time=lambda: max(time.time(), later))
    with patch.object(event_file_writer, "time", clock):
        return SummaryWriter(str(folder), purge_step=purge_step)


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Return the scalars by tag and step, read as TensorBoard does; of a step that was logged twice, the last."""
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of every resumed run
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def scalars_at(folder: Path, step: int) -> dict[str, float]:
    """Return the scalars at a step by tag."""
    return {tag: by_step[step] for tag, by_step in scalars(folder).items() if step in by_step}
