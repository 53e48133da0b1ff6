"""Refuse, before training, a micro-batch that cannot fit into memory: one line now, not a crash at the longest texts.

Called once, when the job is built; `trainer.plan` asks for the bytes of a token.
"""

from deepsiam.data_prep.common.errors import InputError
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


def check_memory(recipe: PretrainRecipe, model: TrunkModel, available: int) -> None:
    """Refuse a micro-batch if the trunk's layers alone keep more bytes for the backward pass than are `available`.

    A micro-batch that passes may still not fit: heads, decoders, weights and optimizer states are not counted. Raise
    InputError naming the keys to lower.
    """
    method, micro = recipe.method, recipe.batch.micro
    tokens = micro * method.example_tokens
    activation_bytes = tokens * bytes_per_token(recipe, model)
    if activation_bytes <= available or not any(parameter.requires_grad for parameter in model.trunk.parameters()):
        return
    sizes = [f"method.{key}={getattr(method, key)}" for key in method.size_keys]
    checkpointing = "" if recipe.activation_checkpointing else ", or set activation_checkpointing=true"
    raise InputError(
        f"{', '.join([f'batch.micro={micro}', *sizes])}: a micro-batch of {tokens:,} tokens keeps "
        f"at least {activation_bytes / 1e9:,.0f} GB for the backward pass, this device has {available / 1e9:,.0f} GB: "
        f"lower one of them{checkpointing}"
    )
