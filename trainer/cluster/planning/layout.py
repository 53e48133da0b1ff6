"""The nearest recipe that a number of ranks can train."""

import math
from dataclasses import dataclass

from deepsiam.trainer.training.recipe.schema import BatchConfig, PretrainRecipe


@dataclass(frozen=True)
class Layout:
    """A recipe whose lanes and micro-batches the ranks share evenly."""

    recipe: PretrainRecipe
    ranks: int
    changes: tuple[str, ...]  # the overrides that change the recipe; empty where it is unchanged
    same_experiment: bool  # whether a step has as many examples as before, each compared with as many others

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a rank has in a step."""
        return self.recipe.batch.micro_batches // self.ranks


def fit(recipe: PretrainRecipe, ranks: int) -> Layout:
    """Change a recipe as little as needed for a number of ranks.

    First the micro-batch becomes smaller and lanes are added, which hardly affects the training. Only where a step has
    fewer examples than ranks, or their number does not divide evenly, it gets more examples, and the run fewer steps.
    """
    size, lanes, workers, steps = recipe.batch.size, recipe.data.lanes, recipe.data.workers, recipe.steps
    if size % ranks:
        size = math.ceil(size / ranks) * ranks
        steps = math.ceil(recipe.steps * recipe.batch.size / size)
    of_rank = size // ranks
    micro = max(n for n in range(1, min(recipe.batch.micro, of_rank) + 1) if of_rank % n == 0)
    if lanes % (shares := ranks * max(1, workers)):
        lanes = math.ceil(lanes / shares) * shares
    expected = None if recipe.ranks is None else ranks
    fitted = {
        "batch.size": (recipe.batch.size, size),
        "batch.micro": (recipe.batch.micro, micro),
        "data.lanes": (recipe.data.lanes, lanes),
        "steps": (recipe.steps, steps),
        "ranks": (recipe.ranks, expected),
    }
    changes = tuple(f"{key}={now}" for key, (was, now) in fitted.items() if now != was)
    update = {
        "batch": BatchConfig(size=size, micro=micro),
        "data": recipe.data.model_copy(update={"lanes": lanes}),
        "steps": steps,
        "ranks": expected,
    }
    compared = micro if recipe.method.compares_micro_batch else recipe.batch.micro
    same = (size, compared) == (recipe.batch.size, recipe.batch.micro)
    return Layout(recipe.model_copy(update=update), ranks, changes, same)
