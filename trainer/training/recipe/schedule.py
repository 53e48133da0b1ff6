"""The learning rate, a pure function of the optimizer step."""

import math
from typing import Literal

Schedule = Literal["linear", "cosine", "wsd", "inverse_sqrt", "constant"]


def learning_rate(
    step: int, *, peak: float, warmup_steps: int, steps: int, schedule: Schedule = "linear", decay_steps: int = 0
) -> float:
    """Return the rate: linear warm-up to `peak` over `warmup_steps`, then decay, or `peak` to the end (`constant`).

    `linear` decays to zero at `steps` (BERT; SEED appendix A.1), and so does `cosine`, along half a wave (Loshchilov
    and Hutter, 2017); `wsd` keeps `peak` until the last `decay_steps`, which decay linearly to zero (warm-up, stable,
    decay: Hu et al., 2024); `inverse_sqrt` decays with the inverse square root of the finished steps and ignores
    `steps` (Vaswani et al., 2017, section 5.3; Poly-encoders, section 4.1).
    `step` counts from 0; the rate of step `warmup_steps - 1` is `peak`.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule == "constant":
        return peak
    if schedule == "inverse_sqrt":
        return peak * math.sqrt(max(1, warmup_steps) / (step + 1))  # continues at `peak`, where the warm-up ended
    if schedule == "wsd":
        return peak * min(1.0, (steps - step) / decay_steps)
    if schedule == "cosine":
        return peak * (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps))) / 2
    return peak * (steps - step) / (steps - warmup_steps)
