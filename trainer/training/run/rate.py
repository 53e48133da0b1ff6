"""The learning rate of a run: that of its schedule, lowered at plateaus.

The loop asks for it in every step, just before the engine computes; each validation may lower it.
"""

from __future__ import annotations

from deepsiam.trainer.training.engine.world import warn
from deepsiam.trainer.training.recipe.plateau import Plateau
from deepsiam.trainer.training.recipe.schema import Recipe


class LearningRate:
    """The learning rate of a recipe, given the validations so far."""

    def __init__(self, recipe: Recipe):
        self.recipe, self.plateau = recipe, Plateau()
        if recipe.optimizer.warmup_steps > recipe.steps:  # also of a run that only tries a recipe, with few steps
            warn(
                f"optimizer.warmup_steps={recipe.optimizer.warmup_steps} is more than steps={recipe.steps}: the "
                "learning rate never reaches optimizer.lr"
            )

    def of(self, step: int) -> float:
        """Return the rate of a step, counted from 0."""
        optimizer = self.recipe.optimizer
        rate = optimizer.rate(step, self.recipe.steps)
        return rate * self.plateau.scale if optimizer.plateau else rate

    def validated(self, total: float) -> bool:
        """Take note of the weighted sum of the losses on held-out data; return whether the rate is lowered."""
        keys, before = self.recipe.optimizer.plateau, self.plateau
        if keys:
            self.plateau = before.after(total, **keys.model_dump())
        return self.plateau.scale != before.scale
