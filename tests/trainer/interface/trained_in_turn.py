"""Trainings in one process: `python -m tests.trainer.interface.trained_in_turn RECIPE FOLDER`; prints what happened."""

import os
import sys
from pathlib import Path

import torch.distributed as dist

from deepsiam.data_prep.common.errors import InputError, StoppedError
from deepsiam.trainer.interface.training import pretrain


def main(recipe: str, folder: Path) -> None:
    """Train twice, once stopped and resumed; nothing of a training stays in the process."""
    before = {name: value for name, value in os.environ.items() if "RANK" in name or "MASTER" in name}
    pretrain(recipe, run=folder / "first", **{"optimizer.lr": 2e-3})
    (folder / "second").mkdir()
    (folder / "second" / "stop").touch()
    try:
        pretrain(recipe, run=folder / "second", optimizer={"lr": 2e-3})
    except StoppedError as error:
        print("stopped:", error)
    assert pretrain(recipe, run=folder / "second", optimizer={"lr": 2e-3}, resume=True) == folder / "second"
    try:
        pretrain(recipe, run=folder / "second", optimizer={"lr": 2e-3})
    except InputError as error:
        print("refused:", error)
    assert not dist.is_initialized()
    assert before == {name: value for name, value in os.environ.items() if "RANK" in name or "MASTER" in name}
    print("end of the script")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
