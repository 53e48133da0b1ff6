"""The activation memory that a trunk's layers keep for the backward pass.

Used before the first step, to refuse what cannot fit, and by `trainer.plan`.
"""

from __future__ import annotations

from deepsiam.models.layers.shape import setting
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.recipe.schema import PretrainRecipe

BYTES = 2  # per number in half precision; full precision needs more


def bytes_per_token(recipe: PretrainRecipe, model: TrunkModel) -> int:
    """Return a lower bound on the bytes that all trained layers of the trunk keep for one token.

    Each layer keeps its input and, without activation checkpointing, queries, keys, values, the output of attention
    and the inner states of the feed-forward block.
    """
    config = model.trunk.config
    numbers = config.hidden_size
    if not recipe.activation_checkpointing:
        numbers += 4 * config.hidden_size + (setting(config, "intermediate_size") or 0)  # GPT-2 states none
    layers, trained = int(config.num_hidden_layers), recipe.optimizer.train
    return BYTES * numbers * (trained if isinstance(trained, int) else layers)
