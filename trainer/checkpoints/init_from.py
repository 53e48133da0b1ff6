"""`init_from`: load the encoder of a run, an export, a Hugging Face folder or a sentence-transformers folder."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel

from data_prep.common.errors import InputError
from data_prep.common.files import sha256_of
from data_prep.tokenizers import tokenizer as tokenizers
from data_prep.tokenizers.tokenizer import Tokenizer
from models.trunk import TrunkModel
from trainer.checkpoints import checkpoint
from trainer.checkpoints.export import MARK
from trainer.checkpoints.export_pretrained import DECODER
from trainer.checkpoints.load import load_trained
from trainer.checkpoints.published_tokenizer import require_same_reading
from trainer.checkpoints.sentence_transformer import (
    is_sentence_transformer,
    lower_cases,
    modules_of,
    refuse_encoder,
)
from trainer.recipe.build import settings_of, trunk_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder, and the heads that were trained with it.

    Attributes:
        heads: the weights of its heads, by their names in the model.
        added_tokens: how many special tokens its training added; None if unknown.
    """

    path: Path
    trunk: PreTrainedModel
    heads: dict[str, Tensor]
    added_tokens: int | None

    def copy_heads(self, model: TrunkModel) -> str:
        """Copy into `model` the heads that match its own by name and shape; return a line that counts them."""
        own = model.heads
        matching = [name for name, p in own.items() if name in self.heads and self.heads[name].shape == p.shape]
        with torch.no_grad():
            for name in matching:
                own[name].copy_(self.heads[name])
        return f"starting from {self.path}: the encoder, and {len(matching)} of the {len(own)} head weights"


def load_encoder(path: Path, tokenizer: Tokenizer) -> PretrainedEncoder:
    """Load the encoder of a run, a checkpoint, an export, a Hugging Face folder or a sentence-transformers folder.

    Only configuration, safetensors and the tokenizer are read, and no code from the folder is run.

    Raises:
        InputError: the folder is none of these, is damaged, has a setting that is not supported
            (`published_settings.TABLE`), or its token ids differ from those of `tokenizer`.
    """
    modules = modules_of(path) if is_sentence_transformer(path) else {}
    folder = modules.get("Transformer", path)
    if not (folder / CONFIG).is_file():
        trained = load_trained(path)
        _check_ids(path, trained.tokenizer.fingerprint, trained.checkpoint / checkpoint.TOKENIZER, tokenizer)
        heads = {name: head.detach() for name, head in trained.model.heads.items()}
        return PretrainedEncoder(path, trained.model.trunk.train(), heads, trained.method.added_tokens)
    fingerprint, added_tokens = _recorded(folder)
    refuse_encoder(folder, to_rank=False)
    own = folder / "tokenizer.json"
    _check_ids(path, fingerprint, own, tokenizer)
    heads = _read_tensors(folder / DECODER) if (folder / DECODER).is_file() else {}
    if "Dense" in modules and "Pooling" not in modules:  # ColBERT's linear layer
        dense = _read_tensors(modules["Dense"] / WEIGHTS)
        heads |= {f"projection.{name.removeprefix('linear.')}": tensor for name, tensor in dense.items()}
    trunk = _load_hugging_face(folder)
    if trunk.config.vocab_size < tokenizer.vocab_size:
        raise InputError(
            f"{folder / CONFIG}: {trunk.config.vocab_size:,} token embeddings are fewer than the "
            f"{tokenizer.vocab_size:,} tokens of its tokenizer.json; copy the folder again"
        )
    if sha256_of(own) == tokenizer.fingerprint:  # otherwise the data's differs on purpose, with the same ids
        require_same_reading(folder, tokenizers.load(own), lower_case=lower_cases(folder))
    return PretrainedEncoder(path, trunk, heads, added_tokens)


def _recorded(path: Path) -> tuple[str | None, int | None]:
    """Return the tokenizer's fingerprint and the added tokens that trainer.export wrote into a folder.

    None stands for what is unknown: both of any other folder, the added tokens of an older export.
    """
    if not (path / MARK).is_file():
        return None, None
    try:
        mark = json.loads((path / MARK).read_text())
        added_tokens = mark.get("added_tokens")
        return str(mark["tokenizer"]), None if added_tokens is None else int(added_tokens)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path / MARK}: damaged; export the run again, or copy the folder again") from None


def _check_ids(path: Path, fingerprint: str | None, file: Path, tokenizer: Tokenizer) -> None:
    """Raise InputError if the vocabulary of `file` differs from that of the data's `tokenizer`."""
    if fingerprint == tokenizer.fingerprint:
        return
    if tokenizers.load(file).vocabulary() != tokenizer.vocabulary():  # normalisation may differ, ids must not
        raise InputError(
            f"init_from: {path} has another tokenizer, with other tokens than the data's {tokenizer.path}: "
            f"prepare the data with --tokenizer {file}, or start from another encoder"
        )


def _load_hugging_face(path: Path) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path / CONFIG}: not the configuration of an encoder ({reason})") from None
    weights = _read_tensors(path / WEIGHTS)
    trunk = trunk_of(settings_of(config), str(path / CONFIG))
    state = trunk.state_dict()
    prefix = f"{trunk.base_model_prefix}."  # most encoders are published inside a model with a head
    given = {_current_name(name.removeprefix(prefix)): tensor for name, tensor in weights.items()}
    missing = sorted(name for name in state.keys() - given.keys() if not name.endswith("position_ids"))
    if missing:
        raise InputError(
            f"{path / WEIGHTS}: lacks {missing[0]} of a {config.model_type} encoder; copy the folder again"
        )
    for name, tensor in state.items():
        if name in given and given[name].shape != tensor.shape:
            stored, expected = list(given[name].shape), list(tensor.shape)
            raise InputError(f"{path / WEIGHTS}: {name} is {stored}, {CONFIG} has {expected}; copy the folder again")
    trunk.load_state_dict({name: given.get(name, tensor) for name, tensor in state.items()})
    return trunk


def _current_name(name: str) -> str:
    """Return PyTorch's name of a LayerNorm parameter; published BERTs still use TensorFlow's `gamma` and `beta`."""
    return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot read the weights ({error}); only safetensors files are read") from None
