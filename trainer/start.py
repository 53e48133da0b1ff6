"""What a pre-training may start from instead of random weights: a run, an export of ours, or a Hugging Face encoder."""

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

from data_prep import tokenizer as tokenizers
from data_prep.errors import InputError
from data_prep.tokenizer import Tokenizer
from models.encoder import TrunkModel
from trainer import checkpoint, trained
from trainer.export import DECODER, MARK
from trainer.methods import settings_of, trunk_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class Start:
    """An encoder with its weights, and those of the heads that were trained beside it, by the model's names."""

    path: Path
    trunk: PreTrainedModel
    heads: dict[str, Tensor]

    def fill(self, model: TrunkModel) -> str:
        """Gives `model` the heads that it has too, by name and shape; says how many of its own it got."""
        own = model.heads
        taken = [name for name, p in own.items() if name in self.heads and self.heads[name].shape == p.shape]
        with torch.no_grad():
            for name in taken:
                own[name].copy_(self.heads[name])
        return f"starting from {self.path}: the encoder, and {len(taken)} of the {len(own)} weights beside it"


def start_from(path: Path, tokenizer: Tokenizer) -> Start:
    """The encoder of a run folder, a checkpoint, an exported folder or a Hugging Face one, for a tokenizer's ids.

    Nothing but configuration, safetensors and tokenizer.json is read, and no code of the folder's is run.

    Raises:
        InputError: it is none of these, is damaged, or knows other token ids than `tokenizer`.
    """
    if not (path / CONFIG).is_file():
        found = trained.load(path)
        _check_ids(path, found.tokenizer.fingerprint, found.checkpoint / checkpoint.TOKENIZER, tokenizer)
        heads = {name: head.detach() for name, head in found.model.heads.items()}
        return Start(path, found.model.trunk.train(), heads)
    _check_ids(path, _fingerprint(path), path / "tokenizer.json", tokenizer)
    heads = _tensors(path / DECODER) if (path / DECODER).is_file() else {}
    return Start(path, _hugging_face(path), heads)


def _fingerprint(path: Path) -> str | None:
    """That of the tokenizer of an export of ours."""
    if not (path / MARK).is_file():
        return None
    try:
        return str(json.loads((path / MARK).read_text())["tokenizer"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path / MARK}: damaged; export the run again, or copy the folder again") from None


def _check_ids(path: Path, fingerprint: str | None, file: Path, tokenizer: Tokenizer) -> None:
    """Raises InputError where a token of `file` has another id, or none, for the data's `tokenizer`."""
    if fingerprint == tokenizer.fingerprint:
        return
    theirs = tokenizers.load(file)
    if theirs.vocabulary() != tokenizer.vocabulary():
        raise InputError(
            f"init_from: {path} knows other tokens than the data's {tokenizer.path}: prepare the data with "
            f"--tokenizer {file}, or start from another encoder"
        )


def _hugging_face(path: Path) -> PreTrainedModel:
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        raise InputError(f"{path / CONFIG}: no configuration of an encoder ({' '.join(str(error).split())})") from None
    weights = _tensors(path / WEIGHTS)
    trunk = trunk_of(settings_of(config), str(path / CONFIG))
    state = trunk.state_dict()
    prefix = f"{trunk.base_model_prefix}."  # of a model with a head, as most are published
    given = {_of_today(name.removeprefix(prefix)): tensor for name, tensor in weights.items()}
    missing = sorted(name for name in state.keys() - given.keys() if not name.endswith("position_ids"))
    if missing:
        raise InputError(
            f"{path / WEIGHTS}: lacks {missing[0]} of a {config.model_type} encoder; copy the folder again"
        )
    for name, tensor in state.items():
        if name in given and given[name].shape != tensor.shape:
            was, wanted = list(given[name].shape), list(tensor.shape)
            raise InputError(f"{path / WEIGHTS}: {name} is {was}, {CONFIG} says {wanted}; copy the folder again")
    trunk.load_state_dict({name: given.get(name, tensor) for name, tensor in state.items()})
    return trunk


def _of_today(name: str) -> str:
    """Google's names for a LayerNorm's weight and bias, which BERT is published with to this day, in PyTorch's."""
    return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: no weights can be read ({error}); only safetensors are") from None
