"""Refuse, before training, a micro-batch that cannot fit into memory.

Called once, when the job is built: better a line then than a crash in the longest batch.
"""

from __future__ import annotations

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.engine.activations import bytes_per_token
from deepsiam.trainer.training.engine.world import device_memory
from deepsiam.trainer.training.recipe.schema import PretrainRecipe


def check_memory(recipe: PretrainRecipe, model: TrunkModel) -> None:
    """Refuse a micro-batch if the trunk's layers alone keep more memory for the backward pass than the device has.

    A micro-batch that passes may still not fit: heads, decoders, weights and optimizer states are not counted.

    Raises:
        InputError: the micro-batch cannot fit; the message names the keys to lower.
    """
    method, micro = recipe.method, recipe.batch.micro
    tokens = micro * method.example_tokens
    kept, available = tokens * bytes_per_token(recipe, model), device_memory()
    if kept <= available or not any(parameter.requires_grad for parameter in model.trunk.parameters()):
        return
    sizes = [f"method.{key}={getattr(method, key)}" for key in method.size_keys]
    checkpointing = "" if recipe.activation_checkpointing else ", or set activation_checkpointing=true"
    raise InputError(
        f"{', '.join([f'batch.micro={micro}', *sizes])}: a micro-batch of {tokens:,} tokens keeps "
        f"at least {kept / 1e9:,.0f} GB for the backward pass, this device has {available / 1e9:,.0f} GB: "
        f"lower one of them{checkpointing}"
    )
