"""The checkpoint of a run's best probe, kept apart from those that it resumes from.

RUN/best/checkpoints/step-00000400/ has the files of a checkpoint, without DeepSpeed's. So RUN/best is a run folder to
all commands that use a trained model, and is never without a checkpoint: a new one appears in one rename, and only then
is the earlier one removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deepsiam.trainer.training.checkpoints.checkpoint import State, newest_first, write

if TYPE_CHECKING:  # as in checkpoint.py
    from deepsiam.trainer.training.engine.engine import Engine

BEST = "best"


def save_best(run: Path, engine: Engine, state: State, sidecar_files: Mapping[str, bytes]) -> Path:
    """Save the weights in place of the best ones so far; all ranks call.

    Raises:
        SaveError: a rank cannot write; the best ones so far are intact.
    """
    saved = write(run / BEST, engine, state, sidecar_files, resumable=False)
    if engine.world.rank == 0:
        for old in newest_first(run / BEST):
            if old != saved:
                shutil.rmtree(old, ignore_errors=True)  # the next save tries again
    return saved
