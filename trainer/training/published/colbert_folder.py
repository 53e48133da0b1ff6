"""Read what a ColBERT's folder holds besides its encoder: the projection, and the tokens that mark its texts.

PyLate names the tokens in query_prefix and document_prefix, sentence-transformers' MultiVectorEncoder in its prompts,
and Stanford's ColBERT in artifact.metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from data_prep.common.errors import InputError
from trainer.training.published.hugging_face import CONFIG, WEIGHTS, architecture_of, read_keys, read_tensors
from trainer.training.published.sentence_transformer import is_sentence_transformer, modules_of
from trainer.training.published.settings import SETTINGS

STANFORD, METADATA = "HF_ColBERT", "artifact.metadata"  # its architecture, its file of settings
PLAIN = {"bias": False, "activation_function": "torch.nn.modules.linear.Identity", "use_residual": False}


def is_colbert(folder: Path) -> bool:
    """Return whether a folder has a ColBERT: the library's modules with Dense and no Pooling, or Stanford's model."""
    if is_sentence_transformer(folder):
        modules = modules_of(folder)
        return "Dense" in modules and "Pooling" not in modules
    return (folder / CONFIG).is_file() and architecture_of(folder) == STANFORD


def read_projection(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a ColBERT's linear layer, by their names in the model.

    Raises:
        InputError: the file is damaged, or the layer does more than multiply.
    """
    if not is_sentence_transformer(folder):
        file = folder / WEIGHTS
    else:
        dense = modules_of(folder)["Dense"]
        settings = read_keys(dense / CONFIG)
        for key, value in PLAIN.items():
            if settings.get(key, value) != value:
                raise InputError(f"{dense / CONFIG}: {key}: {settings[key]!r}: only a linear layer is supported")
        file = dense / WEIGHTS
    weight = read_tensors(file).get("linear.weight")
    if weight is None or weight.ndim != 2:
        raise InputError(f"{file}: has no matrix linear.weight, the projection of a ColBERT; copy the folder again")
    return {"projection.weight": weight}


def read_markers(folder: Path, vocabulary: Mapping[str, int]) -> tuple[int, ...]:
    """Return the ids of the two tokens that mark queries and documents; none if texts are marked by none, or by words.

    Args:
        folder: a ColBERT's.
        vocabulary: the ids of its tokenizer's tokens.
    """
    ids = tuple(vocabulary.get(name, vocabulary.get(name.strip())) for name in _names(folder))
    return tuple(i for i in ids if i is not None) if None not in ids else ()


def _names(folder: Path) -> tuple[str, str]:
    """Return the tokens before a query and a document; PyLate's end in a blank."""
    if not is_sentence_transformer(folder):
        said = read_keys(folder / METADATA, missing=True)
        return str(said.get("query_token_id", "[unused0]")), str(said.get("doc_token_id", "[unused1]"))
    settings = read_keys(folder / SETTINGS, missing=True)
    prompts: Any = settings.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    query, document = (settings.get(f"{side}_prefix", prompts.get(side, "")) for side in ("query", "document"))
    return str(query), str(document)
