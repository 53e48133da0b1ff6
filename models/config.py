"""The keys of a method in a recipe: each method's file has a configuration, which builds its batcher and its model."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedModel

from models.interface import Batcher, Corpus, Vocabulary
from models.trunk import TrunkModel


class Section(BaseModel):
    """A part of a recipe; unknown keys are errors, and numbers must be finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MethodConfig(Section):
    """The keys of a method. Every method declares its `name`, the recipe's `method.name`, as a Literal."""

    name: str

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""

    @property
    def added_tokens(self) -> int:
        """How many special tokens the method adds after [CLS]: rows of the token embedding after the tokenizer's."""
        return 0

    @abstractmethod
    def model(self, trunk: PreTrainedModel) -> TrunkModel:
        """Build the model around a trunk; raise ValueError where the trunk does not suit it."""


class PretrainingConfig(MethodConfig):
    """The keys of a pre-training method."""

    size_keys: ClassVar[tuple[str, ...]] = ("max_tokens",)  # the keys that determine an example's memory

    @abstractmethod
    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        """Build the batcher of documents for a vocabulary."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """How many of the trunk's positions the longest input needs."""

    @property
    def length_key(self) -> str:
        """The key to lower where the trunk has fewer positions than `positions`."""
        return "max_tokens"

    @property
    def example_tokens(self) -> int:
        """The most tokens that an example can have."""
        return self.positions

    @property
    def recomputes_activations(self) -> bool | None:
        """Whether the backward pass recomputes each layer's inner states; None if the method does not support it."""
        return None

    @property
    def needs_trained_encoder(self) -> bool:
        """Whether the method is useful only from a trained encoder, named in `init_from`."""
        return False

    @property
    def needs_dialogues(self) -> bool:
        """Whether the segments must be utterances, each a reply to the one before."""
        return False


class InputConfig(PretrainingConfig):
    """A method whose inputs have at most `max_tokens` tokens, special tokens included."""

    max_tokens: int = Field(512, ge=8)

    @property
    def positions(self) -> int:
        """The longest input."""
        return self.max_tokens


class BlockConfig(InputConfig):
    """Whole sentences packed into blocks; `complete` blocks may cross documents, `complete_doc` ones do not."""

    blocks: Literal["complete", "complete_doc"] = "complete"


class MatchingConfig(MethodConfig):
    """The keys of a matching model."""

    max_query_tokens: int = Field(64, ge=3)
    max_document_tokens: int = Field(512, ge=3)
    negatives_per_query: int = Field(0, ge=0)  # drawn at random from the split's documents that are not relevant

    @abstractmethod
    def batcher(self, vocabulary: Vocabulary, corpus: Corpus, candidates: np.ndarray) -> Batcher:
        """Build the batcher of labelled pairs; it draws negatives from the documents `candidates`, int64 [C]."""
