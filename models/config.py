"""The recipe keys that every method has: each method's file has a configuration class, which builds its model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, core_schema
from transformers import PreTrainedModel

from deepsiam.models.causality import is_causal
from deepsiam.models.interface import Vocabulary
from deepsiam.models.sizes import check_sizes
from deepsiam.models.trunk import TrunkModel, token_embedding
from deepsiam.registry import Registry

Side = Literal["query", "document"]


class Section(BaseModel):
    """A part of a recipe; unknown keys are errors, and numbers must be finite."""

    # frozen: what a run was checked with, and its checkpoints name, cannot change on the way
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def unhashed(default: Any, **bounds: Any) -> Any:
    """Declare a key that a saved recipe, and its hash, lack at its default.

    A key that comes later would otherwise change the hash of all recipes, and so what older runs may resume.
    """
    return Field(default, exclude_if=lambda value: value == default, **bounds)


class OrRegistered:
    """Marks a key that names one of a few, a Literal, as one that may also name what users register."""

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        as_it_is = core_schema.plain_serializer_function_ser_schema(str)  # pydantic warns of what is no Literal
        return core_schema.no_info_wrap_validator_function(self._read, handler(source), serialization=as_it_is)

    def _read(self, value: Any, literal: Callable[[Any], Any]) -> Any:
        try:
            return literal(value)
        except ValidationError:
            if value in self.registry and value not in self.registry.ours:
                return value
            raise


class MethodConfig(Section):
    """The keys of a method. Every method declares its `name`, the recipe's `method.name`, as a Literal."""

    start_keys: ClassVar[tuple[str, ...]] = ()  # keys that a folder to start from gives, unless the recipe sets them
    # the kind of published folder whose model this one computes (trainer/interop/settings.py); "" for none
    folder_kind: ClassVar[str] = ""
    # marker tokens that tell kinds of texts apart: extra embedding rows, random if the encoder lacks them
    markers: ClassVar[int] = 0

    ranks_untuned: ClassVar[bool] = False  # a pre-training method whose embeddings rank, by inner products, as they are

    name: str

    @model_validator(mode="after")
    def _can_be_built(self) -> MethodConfig:
        check_sizes(self, "method.")
        return self

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""

    def weights_at(self, step: int) -> dict[str, float]:
        """The weight of each loss term in the step after `step` finished ones; a function of the step alone."""
        return self.weights

    def remarks(self, losses: Mapping[str, float]) -> dict[str, str]:
        """Return what to say of the mean losses since the last line, by the term that it is about."""
        return {}

    @property
    @abstractmethod
    def input_lengths(self) -> dict[str, int]:
        """The maximum length of each of the trunk's inputs, by the key or keys that limit it."""

    @property
    def start_heads(self) -> str | None:
        """How the names of the heads begin that an encoder to start from must have; None if none are needed."""
        return None

    def head_tokens(self, vocabulary: Vocabulary) -> list[int]:
        """Return the tokens whose rows of a language model's head the method starts from; raise ValueError if unfit."""
        return []

    @property
    def added_tokens(self) -> int:
        """How many special tokens the method adds after [CLS]: rows of the token embedding after the tokenizer's.

        An encoder trained with N added tokens is useful only with the same N.
        """
        return 0

    @property
    def compares_micro_batch(self) -> bool:
        """Whether an example's loss depends on the others of its micro-batch: `negatives`, if any, are theirs."""
        return getattr(self, "negatives", None) == "micro_batch"

    @property
    def compares_step(self) -> bool:
        """Whether a query's negatives come from the whole step."""
        return getattr(self, "negatives", None) == "step"

    @property
    def spans_step(self) -> bool:
        """Whether a loss term is a function of the vectors of the whole step."""
        return self.compares_step

    @property
    def learns_vectors(self) -> bool:
        """Whether its losses compare the vectors of texts with those of a teacher."""
        return False

    @property
    def has_own_negatives(self) -> bool:
        """Whether each query has negatives besides in-batch negatives."""
        return False

    def prompts(self) -> dict[Side, str]:
        """Return the texts that are put before those of each side: by default none."""
        return {}

    @abstractmethod
    def longest_text(self, model: TrunkModel) -> int:
        """The longest text that a model of these keys was trained on, in tokens, [CLS] and [SEP] included."""

    @property
    def ranking_config(self) -> MethodConfig:
        """The keys used for ranking; a pre-trained model that ranks untuned gives those of fine-tuning."""
        return self

    def for_trunk(self: AnyMethod, trunk: PreTrainedModel) -> AnyMethod:
        """Return these keys for a trunk: a causal one is pooled at its last position unless `pooling` is set."""
        by_default = getattr(self, "pooling", None) == "cls" and "pooling" not in self.model_fields_set
        if by_default and not self.added_tokens and is_causal(trunk):
            return self.model_copy(update={"pooling": "last"})
        return self

    @abstractmethod
    def model(self, trunk: PreTrainedModel) -> TrunkModel:
        """Build the model around a trunk; raise ValueError where the trunk does not suit it."""


AnyMethod = TypeVar("AnyMethod", bound=MethodConfig)


def resize_embeddings(
    method: MethodConfig, trunk: PreTrainedModel, vocabulary: Vocabulary, learned_rows: Sequence[int] = ()
) -> None:
    """Add a row to the trunk's token embedding for each token that the method adds after the tokenizer's.

    The new rows are drawn at random, or copies of `learned_rows`, in which the trunk has learned these tokens.
    """
    count = method.added_tokens + method.markers
    rows = vocabulary.vocab_size + count
    if not count:
        return
    learned = token_embedding(trunk)[list(learned_rows)].detach()  # before the resizing, which may drop these rows
    if trunk.config.vocab_size != rows:
        trunk.resize_token_embeddings(rows, mean_resizing=False)  # random like a new trunk's, not the mean of all rows
    if learned_rows:
        with torch.no_grad():
            token_embedding(trunk)[vocabulary.vocab_size :] = learned
