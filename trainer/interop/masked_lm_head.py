"""The head of a published masked LM, as the `lm_head.` of this project's models (`models.layers.lm_head`)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from deepsiam.models.layers.shape import setting
from deepsiam.models.trunk import token_embedding
from deepsiam.trainer.interop.hugging_face import architecture_of, read_weights

CLASSES = ("ForMaskedLM", "ForPreTraining")  # how the names of classes end that have the head
# the names of a published head's layers, by family: dense, LayerNorm, output bias, output matrix
FAMILIES = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions", "decoder"),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head", "decoder"),
    ("vocab_transform", "vocab_layer_norm", "vocab_projector", ""),
    ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", ""),
    ("head.dense", "head.norm", "decoder", ""),
)
OLD_NAMES = {"weight": "gamma", "bias": "beta"}  # of a LayerNorm, in BERT's first files


def read_masked_lm_head(folder: Path, trunk: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of a folder's head for masked tokens, by their names in `LmHead`.

    There are none if the folder has no such head, or one that `LmHead` cannot represent: another activation, or an
    output matrix that is not the token embedding.
    """
    if not architecture_of(folder).endswith(CLASSES):
        return {}
    weights = read_weights(folder)
    for dense, norm, output, matrix in FAMILIES:
        if f"{dense}.weight" in weights:
            found = _head(weights, dense, norm, output)
            table = weights.get(".".join(filter(None, [output, matrix, "weight"])))
            fits = _same_activation(trunk.config) and (
                table is None or torch.equal(table.float(), token_embedding(trunk))
            )
            return found if fits else {}
    return {}


def _head(weights: dict[str, Tensor], dense: str, norm: str, output: str) -> dict[str, Tensor]:
    """Return the tensors of a head; biases that a family leaves out are 0."""
    head = {}
    for own, theirs in (("dense", dense), ("norm", norm)):
        weight, bias = (
            weights.get(f"{theirs}.{part}", weights.get(f"{theirs}.{OLD_NAMES[part]}")) for part in OLD_NAMES
        )
        if weight is not None:
            head[f"lm_head.{own}.weight"] = weight
            head[f"lm_head.{own}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    bias = weights.get(f"{output}.bias", weights.get(f"{output}.decoder.bias"))
    return head if bias is None else {**head, "lm_head.bias": bias}


def _same_activation(config: PreTrainedConfig) -> bool:
    """Whether a published head's activation is that of the trunk's layers, which `LmHead` takes."""
    own = setting(config, "hidden_act")
    if config.model_type in ("bert", "distilbert"):
        return True
    return bool(own == getattr(config, "classifier_activation", "gelu"))  # all others have GELU
