"""A run's events, in TensorBoard and in Weights & Biases.

The monitor writes through it when a step reports; the pages and plots of a run read what it wrote.
"""

import logging
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from torch.utils.tensorboard import SummaryWriter

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_file
from deepsiam.trainer.training.recipe.schema import Recipe

WANDB_ID = "wandb_id"  # file in a run's folder
SECONDS = re.compile(r"events\.out\.tfevents\.(\d+)\.")  # in the name of a file


def open_events(folder: Path, purge_step: int) -> SummaryWriter:
    """Open a new file of events in a folder; readers discard what earlier files have from `purge_step` on.

    Readers take the files in the order of their names, which begin with the second when each was opened. If a clock
    went back, or another host with a slower one took the run over, the new file would be read before the older ones,
    and its steps be discarded: so it is named at least one second after the newest.
    """
    matches = (SECONDS.match(file.name) for file in folder.glob("events.out.tfevents.*"))
    later = max((int(match[1]) + 1 for match in matches if match), default=0)
    # the writer has no argument for the name: its module's own clock makes it
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


class WandbEvents:
    """Logs scalars to the project that a recipe names; a run folder is one run there, also if resumed.

    WANDB_MODE=offline keeps them in RUN/wandb, from where `wandb sync` sends them. Raise InputError where wandb cannot
    start, as without a login or the network.
    """

    def __init__(self, recipe: Recipe) -> None:
        import wandb

        file = recipe.run / WANDB_ID
        if not file.exists():
            with whole_file(file) as opened:
                opened.write(secrets.token_hex(4).encode())
        try:
            self.run = wandb.init(
                project=recipe.wandb,
                id=file.read_text(),
                resume="allow",
                name=str(recipe.run),
                dir=recipe.run,
                config=recipe.model_dump(mode="json"),
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.errors.Error as error:
            raise InputError(
                f"wandb: {error}; with WANDB_MODE=offline, events are kept in {recipe.run}/wandb"
            ) from None
        self.run.define_metric("*", step_metric="step")  # a resumed run may repeat steps

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log the scalars of a step."""
        self.run.log({"step": step, **scalars})

    def close(self) -> None:
        """Write or send what is pending."""
        import wandb

        self.run.finish()
        wandb.teardown()  # waits for its process, which writes the events
