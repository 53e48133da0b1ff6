"""`init_from`: load the encoder of a run, an export, a Hugging Face folder or a sentence-transformers folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from data_prep.common.errors import InputError
from data_prep.tokenizers import tokenizer as tokenizers
from data_prep.tokenizers.tokenizer import Tokenizer
from models.trunk import TrunkModel
from trainer.checkpoints import checkpoint
from trainer.checkpoints.export import MARK
from trainer.checkpoints.export_pretrained import DECODER
from trainer.checkpoints.hugging_face import CONFIG, WEIGHTS, load_hugging_face, read_tensors
from trainer.checkpoints.load import load_trained
from trainer.checkpoints.sentence_transformer import is_sentence_transformer, modules_of


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

    Only configuration, safetensors and tokenizer.json are read, and no code from the folder is run.

    Raises:
        InputError: the folder is none of these, is damaged, or its token ids differ from those of `tokenizer`.
    """
    modules = modules_of(path) if is_sentence_transformer(path) else {}
    folder = modules.get("Transformer", path)
    if not (folder / CONFIG).is_file():
        trained = load_trained(path)
        _check_ids(path, trained.tokenizer.fingerprint, trained.checkpoint / checkpoint.TOKENIZER, tokenizer)
        heads = {name: head.detach() for name, head in trained.model.heads.items()}
        return PretrainedEncoder(path, trained.model.trunk.train(), heads, trained.method.added_tokens)
    fingerprint, added_tokens = _recorded(folder)
    _check_ids(path, fingerprint, folder / "tokenizer.json", tokenizer)
    heads = read_tensors(folder / DECODER) if (folder / DECODER).is_file() else {}
    if "Dense" in modules:  # ColBERT's linear layer
        dense = read_tensors(modules["Dense"] / WEIGHTS)
        heads |= {f"projection.{name.removeprefix('linear.')}": tensor for name, tensor in dense.items()}
    trunk = load_hugging_face(folder)
    if trunk.config.vocab_size < tokenizer.vocab_size:
        raise InputError(
            f"{folder / CONFIG}: {trunk.config.vocab_size:,} token embeddings are fewer than the "
            f"{tokenizer.vocab_size:,} tokens of its tokenizer.json: they are not of one model"
        )
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
