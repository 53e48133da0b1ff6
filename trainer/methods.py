"""A recipe's method, made: its batcher (numpy) and its model (torch) around a trunk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from data_prep.errors import InputError
from data_prep.tokenizer import Tokenizer
from models.clm import Clm, ClmBatcher
from models.condenser import Condenser, CondenserBatcher
from models.cross_thought import CrossThought, CrossThoughtBatcher
from models.encoder import TrunkModel, build_trunk, max_positions
from models.ict import Ict, IctBatcher
from models.mlm import Mlm, MlmBatcher
from models.poly_pretraining import PolyBatcher, PolyPretraining
from models.retromae import RetroMae, RetroMaeBatcher
from models.seed import Seed, SeedBatcher
from models.siamese import Siamese
from models.skip_thought import SkipThought, SkipThoughtBatcher
from models.task import Batcher, Vocabulary
from trainer import method_keys as keys
from trainer.method_keys import PretrainMethod, Section


@dataclass(frozen=True)
class Pretraining:
    """How a pre-training method is made of its keys: what cuts documents into micro-batches, and what learns.

    `arguments` are those of `model` beside the trunk: plain values, which an export repeats. `own_tokens` are how many
    tokens the method has beside the tokenizer's: ids that follow the tokenizer's, rows of the trunk's embedding.
    """

    batcher: Callable[[Any, Vocabulary], Batcher]
    model: Callable[..., TrunkModel]
    arguments: Callable[[Any], dict[str, Any]] = lambda method: {}
    own_tokens: Callable[[Any], int] = lambda method: 0


PRETRAINING: dict[type[Section], Pretraining] = {
    keys.Mlm: Pretraining(
        batcher=lambda method, vocabulary: MlmBatcher(vocabulary, method.max_tokens, method.blocks),
        model=Mlm,
    ),
    keys.Seed: Pretraining(
        batcher=lambda method, vocabulary: SeedBatcher(vocabulary, method.max_tokens, method.blocks, method.mlm),
        model=Seed,
        arguments=lambda method: {
            "mlm": method.mlm,
            **method.model_dump(include={"decoder_layers", "window", "variant", "cls", "freeze_encoder"}),
        },
    ),
    keys.Clm: Pretraining(
        batcher=lambda method, vocabulary: ClmBatcher(vocabulary, method.max_tokens, method.blocks),
        model=Clm,
    ),
    keys.Ict: Pretraining(
        batcher=lambda method, vocabulary: IctBatcher(
            vocabulary, method.max_tokens, method.max_query_tokens, method.remove
        ),
        model=Ict,
    ),
    keys.SkipThought: Pretraining(
        batcher=lambda method, vocabulary: SkipThoughtBatcher(vocabulary, method.max_tokens),
        model=SkipThought,
        arguments=lambda method: method.model_dump(include={"decoder_layers"}),
    ),
    keys.CrossThought: Pretraining(
        batcher=lambda method, vocabulary: CrossThoughtBatcher(
            vocabulary, method.sequences, method.sequence_tokens, method.special_tokens
        ),
        model=CrossThought,
        arguments=lambda method: method.model_dump(include={"special_tokens", "activation_checkpointing"}),
        own_tokens=lambda method: method.special_tokens - 1,  # the first is [CLS]
    ),
    keys.RetroMae: Pretraining(
        batcher=lambda method, vocabulary: RetroMaeBatcher(
            vocabulary, method.max_tokens, method.blocks, method.encoder_mask, method.decoder_mask
        ),
        model=RetroMae,
    ),
    keys.Condenser: Pretraining(
        batcher=lambda method, vocabulary: CondenserBatcher(vocabulary, method.max_tokens, method.blocks),
        model=Condenser,
        arguments=lambda method: method.model_dump(include={"early_layers", "head_layers"}),
    ),
    keys.Poly: Pretraining(
        batcher=lambda method, vocabulary: PolyBatcher(vocabulary, method.max_tokens, method.pairs, method.tokens),
        model=PolyPretraining,
    ),
}


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
    return trunk_of({**config, **known}, "trunk")


def trunk_of(settings: Mapping[str, Any], where: str) -> PreTrainedModel:
    """A trunk with random weights, as `build_trunk` makes it; InputError, naming `where`, for settings of none."""
    with as_input_error(where):
        return build_trunk(settings)


def make_room(method: PretrainMethod, trunk: PreTrainedModel, tokenizer: Tokenizer) -> None:
    """Give the trunk's token embedding a row, drawn at random, for each token that the method has of its own."""
    own = PRETRAINING[type(method)].own_tokens(method)
    if own and trunk.config.vocab_size != tokenizer.vocab_size + own:
        trunk.resize_token_embeddings(tokenizer.vocab_size + own, mean_resizing=False)


def special_tokens_of(method: PretrainMethod | keys.Siamese) -> int:
    """How many special tokens a method puts before a text, [CLS] among them."""
    if isinstance(method, keys.Siamese):
        return method.special_tokens
    return 1 + PRETRAINING[type(method)].own_tokens(method)


def settings_of(config: PreTrainedConfig) -> dict[str, Any]:
    """The plain settings that `build_trunk` makes a trunk of this configuration from."""
    valid = {field.name for field in dataclasses.fields(type(config))} - {"transformers_version", "dtype"}
    settings = {key: value for key, value in config.to_diff_dict().items() if key in valid}
    return {"model_type": config.model_type, **settings}


def check_length(key: str, tokens: int, trunk: PreTrainedModel) -> None:
    """Refuse inputs longer than the trunk has positions."""
    if tokens > (most := max_positions(trunk)):
        raise InputError(f"{key}: {tokens} tokens are more than the trunk's {most} positions")


def pretrain_batcher(method: PretrainMethod, tokenizer: Tokenizer) -> Batcher:
    """Documents to micro-batches, by a pre-training method; InputError where the vocabulary will not do for it."""
    with as_input_error("method"):
        return PRETRAINING[type(method)].batcher(method, vocabulary_of(tokenizer))


def model_of(method: PretrainMethod | keys.Siamese, trunk: PreTrainedModel) -> TrunkModel:
    """A method's model around a trunk; InputError where the trunk will not do for it."""
    with as_input_error("method"):
        if isinstance(method, keys.Siamese):
            keys_of_model = ("pooling", "similarity", "temperature", "loss", "special_tokens")
            return Siamese(trunk, **{key: getattr(method, key) for key in keys_of_model})
        made = PRETRAINING[type(method)]
        return made.model(trunk, **made.arguments(method))


@contextmanager
def as_input_error(where: str) -> Iterator[None]:
    """The models' ValueErrors, with the recipe's section or the file that they are of."""
    try:
        yield
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
