"""Lower the learning rate when the loss on held-out data no longer falls."""

from __future__ import annotations

from dataclasses import dataclass
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
        """Return the state after one more validation; more than `patience` bad ones multiply `scale` by `factor`.

        A NaN loss is bad.
        """
        if loss < (float("inf") if self.best is None else self.best * (1 - THRESHOLD)):
            return Plateau(loss, 0, self.scale)
        if self.bad < patience:
            return Plateau(self.best, self.bad + 1, self.scale)
        return Plateau(self.best, 0, self.scale * factor)
