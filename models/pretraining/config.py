"""The recipe keys of pre-training methods."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field

from deepsiam.models.config import MethodConfig
from deepsiam.models.interface import Batcher, Vocabulary
from deepsiam.models.trunk import TrunkModel, max_positions


class PretrainingConfig(MethodConfig):
    """The keys of a pre-training method."""

    folder_kind = "encoder"

    size_keys: ClassVar[tuple[str, ...]] = ("max_tokens",)  # the keys that determine an example's memory

    @abstractmethod
    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        """Build the batcher of documents for a vocabulary."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """How many of the trunk's positions the longest input needs."""

    def longest_text(self, model: TrunkModel) -> int:
        longest = max_positions(model.trunk) if model.trains_every_position else self.positions
        return longest - self.added_tokens

    @property
    def length_key(self) -> str:
        """The key to lower where the trunk has fewer positions than `positions`."""
        return "max_tokens"

    @property
    def example_tokens(self) -> int:
        """The maximum number of tokens in an example."""
        return self.positions

    @property
    def needs_trained_encoder(self) -> bool:
        """Whether the method is useful only with a trained encoder, named in `init_from`."""
        return False

    @property
    def ranks_untuned(self) -> bool:
        """Whether texts are also ranked by the inner product of its embeddings, without fine-tuning."""
        return False

    @property
    def needs_dialogues(self) -> bool:
        """Whether the segments must be utterances, each a reply to the previous one."""
        return False

    @property
    def needs_pairs(self) -> bool:
        """Whether a document must have two segments, a query and what it should find."""
        return False


class InputConfig(PretrainingConfig):
    """A method whose inputs have at most `max_tokens` tokens, special tokens included."""

    max_tokens: int = Field(512, ge=8)

    @property
    def positions(self) -> int:
        """The longest input."""
        return self.max_tokens


LeftOut = Field(exclude_if=lambda pooling: pooling == "cls")
"""Of a `pooling` that, left out of a recipe, is no part of its identity."""


class BlockConfig(InputConfig):
    """Whole sentences packed into blocks; `complete` blocks may cross documents, `complete_doc` ones do not."""

    blocks: Literal["complete", "complete_doc"] = "complete"
