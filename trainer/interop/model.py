"""A model with its method's keys and its tokenizer: what is ranked with, and written as a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.config import MethodConfig
from deepsiam.models.trunk import TrunkModel


@dataclass(frozen=True)
class LoadedModel:
    """A model in fp32 on the CPU, in eval mode, with its method's keys and its tokenizer."""

    model: TrunkModel
    method: MethodConfig
    tokenizer: Tokenizer
    checkpoint: Path  # or the folder of a published model
    classes: tuple[str, ...] = field(default=(), kw_only=True)  # of a published model's logits, in order, if it says
    remarks: tuple[str, ...] = field(default=(), kw_only=True)  # what is done otherwise than its folder says

    @property
    def kind(self) -> str:
        """The method's name: siamese, seed, mlm."""
        return self.method.name

    @property
    def text_tokens(self) -> int:
        """The longest text that the encoder was trained on, in tokens, [CLS] and [SEP] included."""
        return self.method.longest_text(self.model)
