"""The learning rate, a pure function of the optimizer step."""

from __future__ import annotations


def learning_rate(step: int, *, peak: float, warmup_steps: int, steps: int) -> float:
    """Linear warm-up to `peak` over `warmup_steps`, then linear decay to zero at `steps` (BERT; SEED appendix A.1).

    `step` counts from 0; step `warmup_steps - 1` trains at `peak`.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (steps - step) / (steps - warmup_steps)
