"""Build a trunk: any Hugging Face encoder, by its configuration, with random or published weights."""

import dataclasses
import difflib
import functools
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
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

from deepsiam.models.causality import is_causal, two_texts
from deepsiam.models.sizes import check_sizes, check_weights
from deepsiam.models.trunk import max_positions

# keys whose values Hugging Face does not check, or checks only through a division
COUNTS = ("hidden_size", "intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers")
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
# their layers let the padding beside a text change its states, so that a score would depend on the batch
MIX_IN_PADDING = {"convbert", "fnet", "nystromformer"}
# how a model's code reads a key that its configuration may lack
CONFIG_KEY = re.compile(r'(?:get|has)attr\(\s*(?:self\.)?config,\s*"([a-z]\w*)"')
# errors that Hugging Face raises for a wrong type, activation, pad_token_id or number, or for a non-encoder model
REFUSALS = (StrictDataclassError, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError)


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
    """Return transformers' factory and class for a type's encoder, T5's without its decoder; None for no class."""
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
    declared = {field.name for field in dataclasses.fields(config_class)}
    declared.update(*config_class.attribute_map.items())  # a key and the name that it is stored under
    model_class: Any = MODEL_MAPPING.get(config_class, None)
    return declared | (_keys_in_code(model_class.__module__) if isinstance(model_class, type) else set())


@functools.cache  # a process may build many models, and reading a module's source takes some 20 ms
def _keys_in_code(module: str) -> set[str]:
    code = inspect.getsource(sys.modules[module])
    if "create_causal_mask" in code:
        code += inspect.getsource(masking_utils)
    return {*CONFIG_KEY.findall(code)}


def settings_of(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the plain settings from which `build_trunk` builds a trunk of this configuration."""
    valid = configuration_keys(type(config)) - {"transformers_version", "dtype"}
    settings = {key: value for key, value in config.to_diff_dict().items() if key in valid}
    return {"model_type": config.model_type, **settings}


def _load(
    model_class: Any, config: PreTrainedConfig, weights: Mapping[str, Tensor], options: Mapping[str, bool]
) -> PreTrainedModel:
    """Build a model with weights, converted by transformers, which reads no file here."""
    with _quiet():
        trunk, info = model_class.from_pretrained(
            None,
            config=config,
            state_dict=dict(weights),
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # listed in `info`, to refuse in one line
            output_loading_info=True,
            **options,
        )
    for name, stored_shape, shape in sorted(info["mismatched_keys"]):
        raise ValueError(f"{name} is {list(stored_shape)}, its configuration has {list(shape)}")
    if absent_names := sorted(info["missing_keys"] and info["missing_keys"] & _used(trunk)):
        raise ValueError(f"lacks {absent_names[0]} of a {config.model_type} encoder with its configuration")
    return trunk.train()


def _used(trunk: PreTrainedModel) -> set[str]:
    """Return the parameters that states depend on: all but a pooler's, which published files may lack."""
    parameters = dict(trunk.named_parameters())
    states = trunk(input_ids=torch.tensor(two_texts(trunk.config))).last_hidden_state
    gradients = torch.autograd.grad(states.sum(), list(parameters.values()), allow_unused=True)
    return {name for name, gradient in zip(parameters, gradients, strict=True) if gradient is not None}


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


def _known(kind: str, name: Any, valid: Iterable[str]) -> str:
    """Return `name` if it is valid; else raise ValueError, naming the nearest valid one."""
    if name in (names := sorted(valid)):
        return name
    matches = difflib.get_close_matches(str(name), names, n=1, cutoff=0)
    raise ValueError(f"unknown {kind} {name!r}; nearest valid: {matches[0]!r}")
