"""Does a run still gain? Validations without a lower loss lower the learning rate; probes without a gain end the run.

Both are states that a checkpoint keeps: each measurement makes the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from deepsiam.data_prep.common.json_file import Count

THRESHOLD = 1e-4  # share of the best loss by which a loss must be lower to count as lower


@dataclass(frozen=True)
class Plateau:
    """The state after a run's validations so far, as in torch.optim.lr_scheduler.ReduceLROnPlateau."""

    best: float | None = None  # the lowest loss
    bad: Count = 0  # consecutive validations without a lower loss, since the last change of the rate
    scale: Annotated[float, Field(ge=0, le=1)] = 1.0  # factor on the learning rate

    def after(self, loss: float, *, factor: float, patience: int) -> Plateau:
        """Return the state after one more loss; more than `patience` bad ones (or NaN) multiply `scale`."""
        if loss < (float("inf") if self.best is None else self.best * (1 - THRESHOLD)):
            return Plateau(loss, 0, self.scale)
        if self.bad < patience:
            return Plateau(self.best, self.bad + 1, self.scale)
        return Plateau(self.best, 0, self.scale * factor)


@dataclass(frozen=True)
class Best:
    """The state after a run's probes so far."""

    of: str = ""  # what is measured; the best value of another measure is discarded
    value: float | None = None  # the highest
    step: Count = 0  # at which it was measured
    last: Count | None = None  # the step of the last probe
    bad: Count = 0  # consecutive probes without a higher value

    def after(self, step: int, value: float, of: str, *, is_extra: bool = False) -> Best:
        """Return the state after one more probe; one that a resumed run repeats is not counted again.

        An `is_extra` probe, at a run's last step only, can become the best, but never counts as one without a gain.
        """
        if self.of != of:
            return Best(of, value, step, step)
        if self.last is not None and step <= self.last:
            return self
        if self.value is None or value > self.value:
            return Best(of, value, step, step)
        return replace(self, last=step, bad=self.bad + (not is_extra))
