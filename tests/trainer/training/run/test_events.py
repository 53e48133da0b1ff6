"""The order of a run's TensorBoard events after a stop."""

import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from deepsiam.trainer.training.run.events import open_events


def write(folder: Path, steps: range, value: float) -> None:
    """Write a loss of every step as a process would that begins at the first of them."""
    with open_events(folder, steps.start) as events:
        for step in steps:
            events.add_scalar("loss", value, step)


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_a_resumed_run_is_read_after_the_first_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The clock goes back before the second start, stands still, or goes on."""
    began = time.time()
    monkeypatch.setattr(event_file_writer.time, "time", lambda: began)
    write(tmp_path, range(1, 9), 1.0)
    monkeypatch.setattr(event_file_writer.time, "time", lambda: began + seconds)
    for start in (5, 7):
        write(tmp_path, range(start, 11), float(start))
    read = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in read] == [
        *((step, 1.0) for step in range(1, 5)),
        *((step, 5.0) for step in range(5, 7)),
        *((step, 7.0) for step in range(7, 11)),
    ]
