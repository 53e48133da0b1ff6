"""Whether a micro-batch can fit into memory at all, told before anything is trained."""

from __future__ import annotations

from data_prep.errors import InputError
from models.encoder import TrunkModel, shape_of
from trainer.engine import device_memory
from trainer.recipe import PretrainRecipe

BYTES = 2  # of a number in half precision: full precision keeps more
SIZES = ("sequences", "sequence_tokens", "tokens", "max_tokens")  # the keys of methods that say how large an example is


def check_memory(recipe: PretrainRecipe, model: TrunkModel) -> None:
    """Refuses a micro-batch of which the trunk's layers alone keep more for the backward pass than the device has.

    What fits by this may still not fit: heads, decoders, weights and the optimizer's states are not counted.

    Raises:
        InputError: naming the keys to lower.
    """
    method, micro = recipe.method, recipe.batch.micro
    tokens = micro * method.example_tokens
    kept, there = tokens * bytes_a_token(recipe, model), device_memory()
    if kept <= there or not any(parameter.requires_grad for parameter in model.trunk.parameters()):
        return
    sizes = [f"method.{key}={getattr(method, key)}" for key in SIZES if hasattr(method, key)]
    checkpointing = ", or set method.activation_checkpointing=true"
    raise InputError(
        f"{', '.join([f'batch.micro={micro}', *sizes])}: a micro-batch of {tokens:,} tokens keeps "
        f"at least {kept / 1e9:,.0f} GB for the backward pass, this device has {there / 1e9:,.0f} GB: lower one of them"
        f"{checkpointing if getattr(method, 'activation_checkpointing', None) is False else ''}"
    )


def bytes_a_token(recipe: PretrainRecipe, model: TrunkModel) -> int:
    """What all layers of the trunk keep at least for one token.

    Of each its input; and where those are not computed again, queries, keys, values and what attention makes of them,
    and the feed-forward block's inner states.
    """
    shape = shape_of(model.trunk)
    a_layer = shape.hidden_size
    if not getattr(recipe.method, "activation_checkpointing", False):
        a_layer += 4 * shape.hidden_size + shape.intermediate_size
    return BYTES * a_layer * int(model.trunk.config.num_hidden_layers)
