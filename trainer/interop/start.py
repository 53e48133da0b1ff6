"""An encoder that a training starts from, and the heads that were trained with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.config import MethodConfig
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.interop.folder import Folder

HEAD_PROBLEMS = {  # what a start lacks, by the name of the head
    "lm_head.": "no masked LM's head of BERT's kind, whose output is the token embedding: start from a masked LM, "
    "or train the head on this encoder first (method mlm, optimizer.train=0)",
    "labels.": "no head of a causal language model, from which the logits of labels are: start from a folder of one, "
    "...ForCausalLM",
}


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder, and the heads that were trained with it.

    Attributes:
        folder: that it was loaded from; of a run, the checkpoint.
        heads: the weights of its heads, by their names in the model.
        added_tokens: how many special tokens its training added; None if unknown.
        special_rows: the rows of these in the trunk's token table; none if unknown.
        marker_rows: the rows of the tokens that mark a ColBERT's queries and documents; none for other models.
    """

    folder: Folder
    trunk: PreTrainedModel
    heads: dict[str, Tensor]
    added_tokens: int | None
    special_rows: Sequence[int] = ()
    marker_rows: Sequence[int] = ()

    @property
    def path(self) -> Path:
        """Where it was loaded from."""
        return self.folder.path

    def rows_for(self, method: MethodConfig) -> list[int]:
        """Return the rows of the tokens that a method adds, in its order; none if the start lacks some."""
        rows = [*self.special_rows[: method.added_tokens], *self.marker_rows[: method.markers]]
        return rows if len(rows) == method.added_tokens + method.markers else []

    def fill_heads(self, model: TrunkModel, method: MethodConfig) -> str:
        """Copy into `model` the heads that match its own by name and shape; return a line that counts them.

        Raises:
            InputError: a head that the method takes from its start has no match.
        """
        parameters, prefix = model.heads, method.start_heads
        matching = [name for name, p in parameters.items() if name in self.heads and self.heads[name].shape == p.shape]
        if prefix and any(name.startswith(prefix) for name in parameters.keys() - set(matching)):
            alternative = ", or set method.head=new_mlm" if hasattr(method, "head") else ""
            raise InputError(f"init_from: {self.path} has {HEAD_PROBLEMS[prefix]}{alternative}")
        with torch.no_grad():
            for name in matching:
                parameters[name].copy_(self.heads[name])
        count = f", and {len(matching)} of the {len(parameters)} head weights" if parameters else ""
        return f"starting from {self.path}: the encoder{count}"


Opener = Callable[[], PretrainedEncoder]  # opens a published folder's encoder for its own tokenizer


def rows_after(tokenizer: Tokenizer, number: int) -> range:
    """Return the rows of the tokens that a method added to a tokenizer's."""
    return range(tokenizer.vocab_size, tokenizer.vocab_size + number)


def check_ids(path: Path, start: Tokenizer, tokenizer: Tokenizer) -> None:
    """Raise InputError if an id of the data's `tokenizer` is of another token in that of the folder of a start."""
    if not start.extends(tokenizer):
        raise InputError(
            f"init_from: {path} has another tokenizer, with other tokens than the data's {tokenizer.path}: "
            f"prepare the data with --tokenizer {start.path}, or start from another encoder"
        )
