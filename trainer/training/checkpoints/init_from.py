"""`init_from`: load the encoder of a run, an export, a Hugging Face folder or a sentence-transformers folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.data_prep.common.json_file import Count, Record, read_json
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.config import MethodConfig
from deepsiam.models.trunk import TrunkModel, make_bidirectional
from deepsiam.trainer.interop import colbert, cross_encoder
from deepsiam.trainer.interop.causal_lm import read_label_head, require_known_head
from deepsiam.trainer.interop.cross_encoder import class_names
from deepsiam.trainer.interop.folder import check_settings, kind_of
from deepsiam.trainer.interop.hugging_face import CONFIG, TOKENIZER, load_hugging_face, read_tensors
from deepsiam.trainer.interop.masked_lm import read_masked_lm_head
from deepsiam.trainer.interop.modules import encoder_of
from deepsiam.trainer.interop.same_reading import require_same_reading
from deepsiam.trainer.interop.sentence_transformer import lower_cases
from deepsiam.trainer.interop.settings import COLBERT, DECODER, MARK
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from deepsiam.trainer.training.checkpoints.start_keys import start_notes
from deepsiam.trainer.training.engine.world import say
from deepsiam.trainer.training.recipe.schema import Recipe

NEEDED = {  # what a start lacks, by the name of the head
    "lm_head.": "no masked LM's head of BERT's kind, whose output is the token embedding: start from a masked LM, "
    "or train the head on this encoder first (method mlm, optimizer.train=0)",
    "labels.": "no head of a causal language model, from which the logits of labels are: start from a folder of one, "
    "...ForCausalLM",
}


class _Mark(Record):
    """What trainer.export wrote into a folder about its encoder."""

    tokenizer: str
    added_tokens: Count | None = None


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder, and the heads that were trained with it.

    Attributes:
        path: the folder that it was loaded from; of a run, the checkpoint.
        heads: the weights of its heads, by their names in the model.
        added_tokens: how many special tokens its training added; None if unknown.
        special_rows: the rows of these in the trunk's token table; none if unknown.
        marker_rows: the rows of the tokens that mark a ColBERT's queries and documents; none for other models.
    """

    path: Path
    trunk: PreTrainedModel
    heads: dict[str, Tensor]
    added_tokens: int | None
    special_rows: Sequence[int] = ()
    marker_rows: Sequence[int] = ()

    def rows_for(self, method: MethodConfig) -> list[int]:
        """Return the rows of the tokens that a method adds, in its order; none if the start lacks some."""
        rows = [*self.special_rows[: method.added_tokens], *self.marker_rows[: method.markers]]
        return rows if len(rows) == method.added_tokens + method.markers else []

    def add_head_rows(self, tokens: Sequence[int]) -> None:
        """Add to the heads the rows `labels.` of a causal language model's, where it is one.

        Raises:
            InputError: its head is not supported.
        """
        folder = encoder_of(self.path)
        require_known_head(folder, self.trunk)
        head = read_label_head(folder, self.trunk, tokens)
        self.heads.update({f"labels.{name}": tensor for name, tensor in head.items()})

    def order_classes(self, classes: Sequence[str]) -> list[str]:
        """Bring the last layer of a classifier into the order of these classes, or remove it where it has others.

        Return a line that says so, where it was not in this order before.
        """
        theirs, ours = class_names(self.trunk.config), [name.casefold() for name in classes]
        layers = {name.rpartition(".")[0] for name in self.heads if name.startswith("head.")}
        if not theirs or not layers or (known := [name.casefold() for name in theirs]) == ours:
            return []
        for name in [name for name in self.heads if name.startswith(f"{max(layers)}.")]:
            rows = self.heads.pop(name)
            if sorted(known) == sorted(ours):
                self.heads[name] = rows[[known.index(one) for one in ours]]
        done = "is brought into their order" if sorted(known) == sorted(ours) else "is new"
        return [f"{self.path} has the classes {', '.join(theirs)}; of {', '.join(classes)}, the last layer {done}"]

    def copy_heads(self, model: TrunkModel, method: MethodConfig) -> str:
        """Copy the heads as `fill_heads` does, and say what training by `method` leaves out of the folder."""
        say(*start_notes(self.path, method))
        return self.fill_heads(model, method)

    def fill_heads(self, model: TrunkModel, method: MethodConfig) -> str:
        """Copy into `model` the heads that match its own by name and shape; return a line that counts them.

        Raises:
            InputError: a head that the method takes from its start has no match.
        """
        parameters, prefix = model.heads, method.start_heads
        matching = [name for name, p in parameters.items() if name in self.heads and self.heads[name].shape == p.shape]
        if prefix and any(name.startswith(prefix) for name in parameters.keys() - set(matching)):
            new = ", or set method.head=new_mlm" if hasattr(method, "head") else ""
            raise InputError(f"init_from: {self.path} has {NEEDED[prefix]}{new}")
        with torch.no_grad():
            for name in matching:
                parameters[name].copy_(self.heads[name])
        count = f", and {len(matching)} of the {len(parameters)} head weights" if parameters else ""
        return f"starting from {self.path}: the encoder{count}"


def load_start(recipe: Recipe, tokenizer: Tokenizer) -> PretrainedEncoder:
    """Load the encoder that a recipe starts from, a decoder made bidirectional if the recipe asks for it.

    Raises:
        InputError: as `load_encoder` does, or it cannot be made bidirectional.
    """
    assert recipe.init_from is not None
    encoder = load_encoder(recipe.init_from, tokenizer)
    if recipe.bidirectional:
        with as_input_error("bidirectional"):
            make_bidirectional(encoder.trunk)
    return encoder


def load_encoder(path: Path, tokenizer: Tokenizer) -> PretrainedEncoder:
    """Load the encoder of a run, a checkpoint, an export, a Hugging Face folder or a sentence-transformers folder.

    Only configuration, safetensors and the tokenizer are read, and no code from the folder is run.

    Raises:
        InputError: the folder is none of these, is damaged, has a setting that is not supported
            (`published.table.TABLE`), or its token ids differ from those of `tokenizer`.
    """
    kind, folder = kind_of(path), encoder_of(path)
    if kind is None:
        return _of_run(load_trained(path), path, tokenizer)
    fingerprint, added_tokens = _recorded(folder)
    check_settings(path, kind, to_rank=False)
    _check_ids(path, fingerprint, folder / TOKENIZER, tokenizer)
    trunk = load_hugging_face(folder)
    heads = cross_encoder.read_heads(folder) | read_masked_lm_head(folder, trunk)
    special: Sequence[int] = ()
    markers: Sequence[int] = ()
    if (folder / DECODER).is_file():
        heads = read_tensors(folder / DECODER)
    if added_tokens:
        special = _rows_after(tokenizers.load(folder / TOKENIZER), added_tokens)
    if kind == COLBERT:
        heads = colbert.read_projection(path)
        markers = colbert.read_markers(path, tokenizers.load(folder / TOKENIZER).vocabulary())
    needed = 1 + max([tokenizer.vocab_size - 1, *special[-1:], *markers])
    if trunk.config.vocab_size < needed:
        raise InputError(
            f"{folder / CONFIG}: {trunk.config.vocab_size:,} token embeddings are fewer than the {needed:,} tokens of "
            "its tokenizer.json and its training: they are not of one model"
        )
    if sha256_of(folder / TOKENIZER) == tokenizer.fingerprint:  # else the data's differs on purpose, with the same ids
        require_same_reading(folder, tokenizers.load(folder / TOKENIZER), lower_case=lower_cases(folder))
    return PretrainedEncoder(path, trunk, heads, added_tokens, special, markers)


def _of_run(trained: TrainedModel, path: Path, tokenizer: Tokenizer) -> PretrainedEncoder:
    """Take the encoder of a run."""
    _check_ids(path, trained.tokenizer.fingerprint, trained.checkpoint / checkpoint.TOKENIZER, tokenizer)
    heads = {name: head.detach() for name, head in trained.model.heads.items()}
    rows = _rows_after(trained.tokenizer, trained.method.added_tokens + trained.method.markers)
    special, markers = rows[: trained.method.added_tokens], rows[trained.method.added_tokens :]
    return PretrainedEncoder(trained.checkpoint, trained.model.trunk.train(), heads, len(special), special, markers)


def _rows_after(tokenizer: Tokenizer, number: int) -> range:
    """Return the rows of the tokens that a method added to a tokenizer's."""
    return range(tokenizer.vocab_size, tokenizer.vocab_size + number)


def _recorded(path: Path) -> tuple[str | None, int | None]:
    """Return the tokenizer's fingerprint and the added tokens that trainer.export wrote into a folder.

    None stands for what is unknown: both of any other folder, the added tokens of an older export.
    """
    if not (path / MARK).is_file():
        return None, None
    mark = read_json(path / MARK, _Mark, "damaged; export the run again, or copy the folder again")
    return mark.tokenizer, mark.added_tokens


def _check_ids(path: Path, fingerprint: str | None, file: Path, tokenizer: Tokenizer) -> None:
    """Raise InputError if an id of the data's `tokenizer` is of another token in `file`."""
    if fingerprint == tokenizer.fingerprint:
        return
    if not tokenizers.load(file).extends(tokenizer):
        raise InputError(
            f"init_from: {path} has another tokenizer, with other tokens than the data's {tokenizer.path}: "
            f"prepare the data with --tokenizer {file}, or start from another encoder"
        )
