"""Build what a recipe names: the trunk, the method's batcher and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.adapters import Adapters, add_adapters, choose_targets
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.config import MethodConfig
from deepsiam.models.freeze import freeze
from deepsiam.models.interface import Batcher, Vocabulary
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.trunk import TrunkModel, require_positions
from deepsiam.trainer.training.recipe.schema import AnyRecipe

if TYPE_CHECKING:  # an extra
    from peft import LoraModel


def new_trunk(config: Mapping[str, Any], tokenizer: Tokenizer) -> PreTrainedModel:
    """Build a trunk with random weights for a tokenizer's vocabulary; raise InputError for a wrong key."""
    tokenizer_keys = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad}
    for key, value in tokenizer_keys.items():
        if config.get(key, value) != value:
            raise InputError(f"trunk.{key}: the recipe sets {config[key]}, the data's {tokenizer.path} has {value}")
    return trunk_of({**config, **tokenizer_keys}, "trunk")


def trunk_of(settings: Mapping[str, Any], where: str, weights: Mapping[str, Tensor] | None = None) -> PreTrainedModel:
    """Build a trunk by `build_trunk`; raise InputError, naming `where`, for unusable settings or weights."""
    with as_input_error(where):
        return build_trunk(settings, weights)


def check_length(key: str, tokens: int, trunk: PreTrainedModel) -> None:
    """Raise InputError naming `key` if inputs of `tokens` tokens exceed the trunk's positions."""
    with as_input_error(key):
        require_positions(trunk, tokens)


def build_batcher(method: PretrainingConfig, vocabulary: Vocabulary) -> Batcher:
    """Build a pre-training method's batcher; raise InputError if the vocabulary does not suit it."""
    with as_input_error("method"):
        return method.batcher(vocabulary)


def build_model(method: MethodConfig, trunk: PreTrainedModel) -> TrunkModel:
    """Build a method's model around a trunk; raise InputError if the trunk does not suit it."""
    with as_input_error("method"):
        return method.model(trunk)


def freeze_model(model: TrunkModel, recipe: AnyRecipe) -> AnyRecipe:
    """Freeze the parts of a model that a recipe does not train, or add the recipe's adapters.

    Return the recipe; the layers that get adapters, if it leaves them to peft, are filled in. Raise InputError where
    the trunk has no such part, or peft is not installed.
    """
    trained = recipe.optimizer.train
    with as_input_error("optimizer.train"):
        if not isinstance(trained, Adapters):
            freeze(model, trained)
            return recipe
        require("peft", "peft", feature="optimizer.train.lora")
        adapters = Adapters(lora=choose_targets(model.trunk, trained.lora))
    adapt_model(model, adapters, recipe.method)
    return recipe.model_copy(update={"optimizer": recipe.optimizer.model_copy(update={"train": adapters})})


def adapt_model(model: TrunkModel, adapters: Adapters, method: MethodConfig) -> list[LoraModel]:
    """Add adapters with known targets to a method's model, as `models.adapters.add_adapters` does."""
    require("peft", "peft", feature="a run with adapters")
    return add_adapters(model, adapters.lora, new_tokens=bool(method.added_tokens + method.markers))
