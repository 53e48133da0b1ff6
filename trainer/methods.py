"""A recipe's method, made: its batcher (numpy) and its model (torch) around a trunk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedModel

from data_prep.errors import InputError
from data_prep.tokenizer import Tokenizer
from models.encoder import build_trunk, max_positions
from models.mlm import Mlm, MlmBatcher
from models.seed import Seed, SeedBatcher
from models.siamese import Siamese
from models.task import Batcher, Vocabulary
from trainer import recipe

PretrainMethod = recipe.Mlm | recipe.Seed
Model = Mlm | Seed | Siamese


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """What models need to know of a tokenizer."""
    t = tokenizer
    return Vocabulary(t.vocab_size, pad=t.pad, unk=t.unk, cls=t.cls, sep=t.sep, mask=t.mask)


def new_trunk(config: Mapping[str, Any], tokenizer: Tokenizer) -> PreTrainedModel:
    """A trunk with random weights for a tokenizer's vocabulary.

    Raises InputError for a key that the configuration does not have, or a vocabulary that is not the data's.
    """
    known = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad}
    for key, value in known.items():
        if config.get(key, value) != value:
            raise InputError(f"trunk.{key}: the recipe says {config[key]}, the data's {tokenizer.path} has {value}")
    with _as_input_error("trunk"):
        return build_trunk({**config, **known})


def trunk_settings(trunk: PreTrainedModel) -> dict[str, Any]:
    """The plain settings that `build_trunk` makes a trunk of this shape from."""
    valid = {field.name for field in dataclasses.fields(type(trunk.config))} - {"transformers_version", "dtype"}
    settings = {key: value for key, value in trunk.config.to_diff_dict().items() if key in valid}
    return {"model_type": trunk.config.model_type, **settings}


def check_length(key: str, tokens: int, trunk: PreTrainedModel) -> None:
    """Refuse inputs longer than the trunk has positions."""
    if tokens > (most := max_positions(trunk)):
        raise InputError(f"{key}: {tokens} tokens are more than the trunk's {most} positions")


def pretrain_batcher(method: PretrainMethod, tokenizer: Tokenizer) -> Batcher:
    """Documents to micro-batches, by a pre-training method."""
    make = {"mlm": MlmBatcher, "seed": SeedBatcher}[method.name]
    return make(vocabulary_of(tokenizer), method.max_tokens, method.blocks)


def model_of(method: PretrainMethod | recipe.Siamese, trunk: PreTrainedModel) -> Model:
    """A method's model around a trunk."""
    with _as_input_error("method"):
        if isinstance(method, recipe.Seed):
            return Seed(trunk, method.decoder_layers, method.window, method.variant)
        if isinstance(method, recipe.Siamese):
            return Siamese(trunk, method.pooling, method.similarity, method.temperature, method.loss)
        return Mlm(trunk)


@contextmanager
def _as_input_error(section: str) -> Iterator[None]:
    """The models' ValueErrors, with the recipe's section."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{section}: {error}") from None
