"""The learning rate, a pure function of the optimizer step."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["linear", "inverse_sqrt", "constant"]


def learning_rate(step: int, *, peak: float, warmup_steps: int, steps: int, schedule: Schedule = "linear") -> float:
    """Return the rate: linear warm-up to `peak` over `warmup_steps`, then decay, or `peak` to the end (`constant`).

    `linear` decays to zero at `steps` (BERT; SEED appendix A.1); `inverse_sqrt` decays with the inverse square root of
    the finished steps and ignores `steps` (Vaswani et al., 2017, section 5.3; Poly-encoders, section 4.1).
    `step` counts from 0; the rate of step `warmup_steps - 1` is `peak`.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule == "constant":
        return peak
    if schedule == "inverse_sqrt":
        return peak * math.sqrt(max(1, warmup_steps) / (step + 1))
    return peak * (steps - step) / (steps - warmup_steps)
