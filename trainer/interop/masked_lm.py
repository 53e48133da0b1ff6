"""The head of a published masked LM, as the `lm_head.` of this project's models (`models.layers.lm_head`)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from deepsiam.models.layers.shape import setting
from deepsiam.models.trunk import token_embedding
from deepsiam.trainer.interop.files import class_for, write_headed
from deepsiam.trainer.interop.folder import Folder

CLASSES = ("ForMaskedLM", "ForPreTraining")  # how the names of classes end that have the head


class Layers(NamedTuple):
    """The names of a head's layers in a file: dense, LayerNorm, output bias, and output matrix, beside the bias."""

    dense: str
    norm: str
    output: str
    matrix: str = "decoder"


FAMILIES = (
    Layers("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"),
    Layers("lm_head.dense", "lm_head.layer_norm", "lm_head"),
    Layers("vocab_transform", "vocab_layer_norm", "vocab_projector", ""),
    Layers("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", ""),
    Layers("head.dense", "head.norm", "decoder", ""),
)
OLD_NAMES = {"weight": "gamma", "bias": "beta"}  # of a LayerNorm, in BERT's first files


def read_masked_lm_head(folder: Folder, trunk: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of a folder's head for masked tokens, by their names in `LmHead`.

    There are none if the folder has no such head, or one that `LmHead` cannot represent: another activation, or an
    output matrix that is not the token embedding.
    """
    if not folder.architecture.endswith(CLASSES):
        return {}
    weights = folder.weights
    layers = _layers_of(weights)
    if layers is None or not _same_activation(trunk.config):
        return {}
    table = weights.get(".".join(filter(None, [layers.output, layers.matrix, "weight"])))
    if table is not None and not torch.equal(table.float(), token_embedding(trunk)):
        return {}
    head = {}
    for layer, library_layer in (("dense", layers.dense), ("norm", layers.norm)):
        weight, bias = (
            weights.get(f"{library_layer}.{part}", weights.get(f"{library_layer}.{OLD_NAMES[part]}"))
            for part in OLD_NAMES
        )
        if weight is not None:
            head[f"lm_head.{layer}.weight"] = weight
            head[f"lm_head.{layer}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    bias = weights.get(f"{layers.output}.bias", weights.get(f"{layers.output}.decoder.bias"))
    return head if bias is None else {**head, "lm_head.bias": bias}


def masked_lm_for(trunk: PreTrainedModel) -> PreTrainedModel | None:
    """Return transformers' masked LM for a trunk, as `class_for` does; None if an `LmHead` is not what it computes."""
    model = class_for(trunk, MODEL_FOR_MASKED_LM_MAPPING)
    return model if model and _layers_of(model.state_dict()) and _same_activation(trunk.config) else None


def write_masked_lm(trunk: PreTrainedModel, head: Mapping[str, Tensor], folder: Path) -> None:
    """Write a trunk and the tensors of an `LmHead` as the masked LM of `masked_lm_for`."""
    model = masked_lm_for(trunk)
    assert model is not None
    layers = _layers_of(model.state_dict())
    assert layers is not None
    published_layers = {"dense": layers.dense, "norm": layers.norm}
    tensors = {
        f"{library_layer}.{part}": head[f"{layer}.{part}"]
        for layer, library_layer in published_layers.items()
        for part in OLD_NAMES
    }
    biases = (f"{layers.output}.bias", f"{layers.output}.decoder.bias")
    tensors |= {next(name for name in biases if name in model.state_dict()): head["bias"]}
    model.config.tie_word_embeddings = True
    write_headed(model, trunk, tensors, folder)


def _layers_of(names: Container[str]) -> Layers | None:
    """Return the names of a head's layers, of a model or a file that has tensors with these names."""
    return next((layers for layers in FAMILIES if f"{layers.dense}.weight" in names), None)


def _same_activation(config: PreTrainedConfig) -> bool:
    """Whether a published head's activation is that of the trunk's layers, which `LmHead` takes."""
    activation = setting(config, "hidden_act")
    if config.model_type in ("bert", "distilbert"):
        return True
    return bool(activation == getattr(config, "classifier_activation", "gelu"))  # all others have GELU
