"""The trunk of a model, any Hugging Face encoder: the models' base class, building a trunk, and its limits."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
    masking_utils,
)
from transformers.activations import ACT2FN
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING
from transformers.utils import logging

from models.causality import is_causal, is_causal_now, two_texts
from models.encode import encode, first_position
from models.layers.pooling import Pooling, bottleneck
from models.sizes import check_sizes, check_weights
from models.vectors import Vectors, one_vector

# keys whose values Hugging Face does not check, or checks only through a division
COUNTS = (
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
)
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
# their layers let the padding beside a text change its states, so that a score would depend on the batch
MIX_IN_PADDING = {"convbert", "fnet", "nystromformer"}
# of a trunk that knows the distances of tokens alone, such as T5's, which has no limit of its own
POSITIONS_OF_DISTANCES = 2048
INSTEAD = (
    "take another encoder, such as bert, or make a decoder bidirectional (bidirectional, or trunk.is_causal=false)"
)
# how a model's code reads a key that its configuration may lack
READ = re.compile(r'(?:get|has)attr\(\s*(?:self\.)?config,\s*"([a-z]\w*)"')
# errors that Hugging Face raises for a wrong type, activation, pad_token_id or number, or for a non-encoder model
REFUSALS = (
    StrictDataclassError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
)


class TrunkModel(nn.Module):
    """The base class of every method's model: an encoder (`trunk`) and whatever the method puts on top of it."""

    trunk: PreTrainedModel
    keys: Any  # of the method; a run on several sources sets those of the source that the next micro-batch comes from
    from_base: frozenset[str] = frozenset()  # the parameters that adapters leave as the base has them
    trains_every_position = False  # true where pre-training moves short inputs over all of the trunk's positions

    @property
    def heads(self) -> dict[str, nn.Parameter]:
        """The parameters outside the trunk, by name: the method trains them; an exported encoder does not have them."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("trunk.")}


class Encoder(TrunkModel):
    """The base class of models that turn a text into vectors, independently of what it is compared with."""

    pooling: Pooling = "cls"

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        """Return the vectors of texts, ids `[CLS] text [SEP]` int64 and mask bool [B, T]: by default h_0."""
        return one_vector(bottleneck(encode(self.trunk, ids, mask), mask, self.pooling))

    def embed_queries(self, ids: Tensor, mask: Tensor) -> Vectors:
        """Return the vectors of queries; by default they are encoded like documents."""
        return self.embed_documents(ids, mask)


def build_trunk(config: Mapping[str, Any], weights: Mapping[str, Tensor] | None = None) -> PreTrainedModel:
    """Build an encoder without pooler, in fp32; its attention is SDPA where the type has it.

    Args:
        config: `model_type` (bert, roberta, ...) and any of `configuration_keys`. The caller sets `vocab_size` and
            `pad_token_id` from the tokenizer.
        weights: those of a published model of this type, with or without a head, under any names for which
            transformers has a conversion; by default they are random.

    Raises:
        ValueError: an unknown key or type (naming the nearest valid one), a value that Hugging Face refuses, weights
            that do not fit, or a model that does not turn token ids into states.
    """
    settings = dict(config)
    model_type = settings.pop("model_type", None)
    config_class = CONFIG_MAPPING[_known("model_type", model_type, CONFIG_MAPPING)]
    factory, model_class = plain_encoder(config_class)
    if model_class is None:
        raise ValueError(f"model_type {model_type!r} has no plain encoder")
    if model_type in MIX_IN_PADDING:
        raise ValueError(f"model_type {model_type!r} mixes padding into the texts: choose another, such as bert")
    for key in settings:
        _known(f"{model_type} configuration key", key, configuration_keys(config_class))
    for key in sorted({*COUNTS, *(config_class.attribute_map.get(key, key) for key in COUNTS)} & settings.keys()):
        if isinstance(settings[key], int) and settings[key] < 1:
            raise ValueError(f"{model_type} configuration: {key} must be at least 1, not {settings[key]}")
    check_sizes(settings.items(), f"{model_type} configuration: ")
    for key in ACTIVATIONS:
        if isinstance(settings.get(key), str):
            _known(f"{model_type} {key}", settings[key], ACT2FN)
    settings = {**_without_foreign_ids(config_class, settings), **settings}
    has_pooler = "add_pooling_layer" in inspect.signature(model_class).parameters
    options = {"add_pooling_layer": False} if has_pooler else {}
    try:
        resolved = AutoConfig.for_model(model_type, **settings)
        check_weights(resolved)
        if weights is None:
            trunk = factory.from_config(resolved, dtype=torch.float32, **options)
        else:
            trunk = _load(model_class, resolved, weights, options)
    except REFUSALS as error:
        raise ValueError(f"{model_type} configuration: {' '.join(str(error).split())}") from error
    max_positions(trunk)  # raises an error for a trunk without this limit
    if "decoder_input_ids" in inspect.signature(trunk.forward).parameters:
        raise ValueError(f"model_type {model_type!r} is an encoder and a decoder: take an encoder, such as bert")
    try:
        is_causal(trunk)  # while it has its weights
    except (*REFUSALS, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"model_type {model_type!r} does not turn token ids alone into states: {reason}") from error
    return trunk


def plain_encoder(config_class: type[PreTrainedConfig]) -> tuple[Any, Any]:
    """Return transformers' factory and class of a type's encoder alone: of T5 without its decoder; None if none is."""
    model_class: Any = MODEL_MAPPING.get(config_class, None)
    if not isinstance(model_class, type):  # Funnel has two
        return AutoModel, None
    half: Any = MODEL_FOR_TEXT_ENCODING_MAPPING.get(config_class, None)
    if half not in (None, model_class):
        return AutoModelForTextEncoding, half
    return AutoModel, model_class


def configuration_keys(config_class: type[PreTrainedConfig]) -> set[str]:
    """Return the keys of a type's configuration: those that it declares, and others that its model reads.

    DeBERTa's code, for example, reads position_buckets, which its configuration class does not declare, and all
    decoders' code reads is_causal.
    """
    declared = {field.name for field in dataclasses.fields(config_class)} | set(config_class.attribute_map)
    model_class: Any = MODEL_MAPPING.get(config_class, None)
    code = inspect.getsource(sys.modules[model_class.__module__]) if isinstance(model_class, type) else ""
    if "create_causal_mask" in code:
        code += inspect.getsource(masking_utils)
    return {*declared, *READ.findall(code)}


def _load(
    model_class: Any, config: PreTrainedConfig, weights: Mapping[str, Tensor], options: Mapping[str, bool]
) -> PreTrainedModel:
    """Build a model with weights, converted by transformers, which reads no file here.

    Raises:
        ValueError: a weight that states depend on is missing, or one has another shape than the configuration says.
    """
    with _quiet():
        trunk, info = model_class.from_pretrained(
            None,
            config=config,
            state_dict=dict(weights),
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # listed in `info`
            output_loading_info=True,
            **options,
        )
    for name, stored, expected in sorted(info["mismatched_keys"]):
        raise ValueError(f"{name} is {list(stored)}, its configuration has {list(expected)}")
    if missing := sorted(info["missing_keys"] and info["missing_keys"] & _used(trunk)):
        raise ValueError(f"lacks {missing[0]} of a {config.model_type} encoder with its configuration")
    return trunk.train()


def _used(trunk: PreTrainedModel) -> set[str]:
    """Return the parameters that states depend on: all but a pooler's, which published files may lack."""
    named = dict(trunk.named_parameters())
    states = trunk(input_ids=torch.tensor(two_texts(trunk.config))).last_hidden_state
    gradients = torch.autograd.grad(states.sum(), list(named.values()), allow_unused=True)
    return {name for name, gradient in zip(named, gradients, strict=True) if gradient is not None}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bar, and its table of weights that the trunk does not have, such as a head's."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _without_foreign_ids(config_class: type, settings: Mapping[str, Any]) -> dict[str, None]:
    """Unset default special ids beyond the vocabulary: no encoder reads them, but transformers warns about them."""
    names = [f"{token}_token_id" for token in ("bos", "cls", "eos", "sep")]
    vocabulary, defaults = settings.get("vocab_size"), {name: getattr(config_class, name, None) for name in names}
    return {
        k: None for k, v in defaults.items() if isinstance(v, int) and isinstance(vocabulary, int) and v >= vocabulary
    }


def _known(what: str, name: Any, valid: Iterable[str]) -> str:
    """Return `name` if it is valid; else raise ValueError, naming the nearest valid one."""
    if name in (names := sorted(valid)):
        return name
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0)
    raise ValueError(f"unknown {what} {name!r}; nearest valid: {near[0]!r}")


def max_positions(trunk: PreTrainedModel) -> int:
    """Return the length, in tokens, of the longest input that the trunk has positions for.

    RoBERTa and similar models number positions from padding_idx + 1, so their table is longer than their longest input.

    Raises:
        ValueError: the configuration has no `max_position_embeddings`, and the trunk reads more than distances.
    """
    most = getattr(trunk.config, "max_position_embeddings", None)
    if most is None and hasattr(trunk.config, "relative_attention_max_distance"):
        return POSITIONS_OF_DISTANCES
    if not isinstance(most, int) or most < 1:  # XLNet's is -1
        raise ValueError(
            f"model_type {trunk.config.model_type!r} has no max_position_embeddings, the length of its longest input: "
            "take an encoder that has, such as bert"
        )
    return most - first_position(trunk)


def token_embedding(trunk: PreTrainedModel) -> nn.Parameter:
    """Return the trunk's token embeddings [V, H]. Call it inside forward only, where ZeRO-3 gathers them."""
    weight = trunk.get_input_embeddings().weight
    assert isinstance(weight, nn.Parameter)
    return weight


def require_bidirectional(trunk: PreTrainedModel, instead: str = INSTEAD) -> None:
    """Refuse a causal trunk where a text is read from the state of [CLS]: it would be the same for every text.

    Args:
        trunk: what the method reads texts with.
        instead: what to do, in the message.

    Raises:
        ValueError: the trunk is causal.
    """
    if is_causal(trunk):
        kind = f"model_type {trunk.config.model_type!r}"
        raise ValueError(f"the trunk ({kind}) is causal, so [CLS] sees no text: {instead}")


def make_bidirectional(trunk: PreTrainedModel) -> None:
    """Let a decoder's tokens attend to later ones too, by the mask that transformers itself makes of `is_causal` false.

    Raises:
        ValueError: the trunk is no decoder, or its code has a causal mask of its own.
    """
    kind = f"model_type {trunk.config.model_type!r}"
    if not is_causal(trunk):
        raise ValueError(f"the trunk ({kind}) is bidirectional already: leave it out")
    trunk.config.is_causal = False
    if is_causal_now(trunk):
        raise ValueError(f"transformers does not make the trunk ({kind}) bidirectional: leave it out")


def token_types(trunk: PreTrainedModel) -> int:
    """Return how many token types a trunk has an embedding for: BERT 2, RoBERTa 1, DistilBERT and ModernBERT 0."""
    table = getattr(getattr(trunk, "embeddings", None), "token_type_embeddings", None)
    return 0 if table is None else int(table.num_embeddings)


def widen_token_types(trunk: PreTrainedModel, number: int) -> None:
    """Give a trunk that tells two texts apart by their types as many as `number`; new ones start as its last."""
    if not 2 <= token_types(trunk) < number:
        return
    table: Any = trunk.get_submodule("embeddings.token_type_embeddings")
    rows = table.weight.detach()
    table.weight = nn.Parameter(torch.cat([rows, rows[-1:].expand(number - len(rows), -1)]))
    trunk.config.type_vocab_size = table.num_embeddings = number


def encoders_of(model: TrunkModel) -> list[PreTrainedModel]:
    """Return a model's encoders: one, or one for queries and one for documents."""
    return [part for part in model.children() if isinstance(part, PreTrainedModel)]


def layers_of(encoder: PreTrainedModel) -> nn.ModuleList:
    """Return an encoder's layers, the lowest first: its only module list of the configured number of layers.

    Raises:
        ValueError: there is no such list (ALBERT's layers share their parameters), or there are several.
    """
    count = encoder.config.num_hidden_layers
    lists = {name: m for name, m in encoder.named_modules() if isinstance(m, nn.ModuleList) and len(m) == count}
    outermost = [m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)]
    if len(outermost) != 1:
        found = f"{len(outermost)} lists of {count} modules, not one"
        raise ValueError(f"the layers of model_type {encoder.config.model_type!r} are not found ({found}): set all")
    return outermost[0]
