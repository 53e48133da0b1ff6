"""Refuse, before training, a micro-batch that cannot fit into memory."""

from __future__ import annotations

from data_prep.common.errors import InputError
from models.layers.shape import shape_of
from models.trunk import TrunkModel
from trainer.engine.world import device_memory
from trainer.recipe.schema import PretrainRecipe

BYTES = 2  # per number in half precision; full precision needs more


def check_memory(recipe: PretrainRecipe, model: TrunkModel) -> None:
    """Refuse a micro-batch for which the trunk's layers alone keep more for the backward pass than the device has.

    A micro-batch that passes may still not fit: heads, decoders, weights and optimizer states are not counted.

    Raises:
        InputError: naming the keys to lower.
    """
    method, micro = recipe.method, recipe.batch.micro
    tokens = micro * method.example_tokens
    kept, available = tokens * bytes_per_token(recipe, model), device_memory()
    if kept <= available or not any(parameter.requires_grad for parameter in model.trunk.parameters()):
        return
    sizes = [f"method.{key}={getattr(method, key)}" for key in method.size_keys]
    checkpointing = ", or set method.activation_checkpointing=true"
    raise InputError(
        f"{', '.join([f'batch.micro={micro}', *sizes])}: a micro-batch of {tokens:,} tokens keeps "
        f"at least {kept / 1e9:,.0f} GB for the backward pass, this device has {available / 1e9:,.0f} GB: "
        f"lower one of them{checkpointing if method.recomputes_activations is False else ''}"
    )


def bytes_per_token(recipe: PretrainRecipe, model: TrunkModel) -> int:
    """How much all layers of the trunk that are trained keep at least for one token.

    Each layer keeps its input and, without activation checkpointing, queries, keys, values, the output of attention
    and the inner states of the feed-forward block.
    """
    shape = shape_of(model.trunk)
    numbers = shape.hidden_size
    if not recipe.method.recomputes_activations:
        numbers += 4 * shape.hidden_size + shape.intermediate_size
    layers, trained = int(model.trunk.config.num_hidden_layers), recipe.optimizer.train
    return BYTES * numbers * (trained if isinstance(trained, int) else layers)
