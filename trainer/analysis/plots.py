"""What plots of a run show: the curves that it logged, and their means."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from deepsiam.data_prep.common.errors import InputError

Curve = tuple[np.ndarray, np.ndarray]  # steps int64 [n], values fp64 [n]


def read_scalars(run: Path) -> dict[str, Curve]:
    """Read the finite scalars that a run logged, by tag; where a resumed run logged a step twice, keep the last value.

    Raise InputError where the run has no events.
    """
    if not (run / "tensorboard").is_dir():
        raise InputError(f"{run}: has logged nothing: it has no folder tensorboard; name another run")
    from deepsiam.trainer.training.run.events import scalars  # imports TensorBoard: a second

    curves = {}
    for tag, by_step in scalars(run / "tensorboard").items():
        if steps := [step for step in sorted(by_step) if math.isfinite(by_step[step])]:
            curves[tag] = (np.array(steps), np.array([by_step[step] for step in steps]))
    return curves


def smooth(values: np.ndarray) -> np.ndarray:
    """Average each value with its neighbours, over about a tenth of the points: fp64 [n].

    The window is centred, and narrower at the start, so that it does not lag where the loss falls fastest; at the end
    it covers earlier points only.
    """
    half = max(1, len(values) // 20)
    points = np.arange(len(values))
    starts = np.maximum(points - half, 0)
    ends = np.minimum(points + np.minimum(half, points), len(values) - 1)
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return (sums[ends + 1] - sums[starts]) / (ends + 1 - starts)
