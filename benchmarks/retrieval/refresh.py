"""How much of a fine-tuning's time is spent on mining negatives on the way (ANCE)."""

from __future__ import annotations

import contextlib
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.common.made_up_pairs import PairSizes, prepare, values_of
from benchmarks.common.training import train
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import mine

DEPTH = 50  # documents ranked for each query


@dataclass(frozen=True)
class RefreshSizes(PairSizes):
    """A fine-tuning that mines at regular steps."""

    every: int = 20


def measure(sizes: RefreshSizes, _: float) -> dict[str, Any]:
    """Fine-tune once in one process, from BM25's negatives, however long that takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = _write_recipe(sizes, folder)
        with contextlib.redirect_stdout(io.StringIO()):
            mine.main(
                [f"--collection={folder / 'collection'}", "--split=train", "--system=bm25", f"--out={folder / 'mined'}"]
            )
        train("trainer.finetune", str(recipe), folder / "run", {}, ranks=1)
        passages = len(Collection.open(folder / "mined").corpus)
        return in_numbers(sizes, passages, folder / "run")


def _write_recipe(sizes: RefreshSizes, folder: Path) -> Path:
    prepare(sizes, folder)
    values = values_of(sizes, folder)
    values |= {"init_from": str(folder / "encoder"), "steps": sizes.steps, "log_every": 1}
    values["data"]["collection"] = str(folder / "mined")
    values["method"]["hard_negatives"] = 1
    values["refresh"] = {"every": sizes.every, "depth": DEPTH}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
    return folder / "recipe.yaml"


def in_numbers(sizes: RefreshSizes, passages: int, run: Path) -> dict[str, Any]:
    """Return the share of refreshes in the time between the first and the last step's progress lines."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    steps = events.Scalars("loss/softmax")
    first, last = steps[0], steps[-1]
    spent = [60 * event.value for event in events.Scalars("negatives/minutes") if event.step < last.step]
    seconds = last.wall_time - first.wall_time
    step = (seconds - sum(spent)) / (last.step - first.step)
    refresh = sum(spent) / len(spent)
    return {
        "passages": passages,
        "figures": {
            "seconds of a step": step,
            "seconds of a refresh": refresh,
            "a refresh, in steps": refresh / step,
            "passages and queries of a refresh, in those of a step": 2 * passages / (3 * sizes.batch),
            f"share of the time, one every {sizes.every} steps": refresh / (refresh + sizes.every * step),
        },
    }
