"""The recipe keys of pre-training methods."""

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field

from deepsiam.models.config import MethodConfig
from deepsiam.models.interface import Batcher, Vocabulary
from deepsiam.models.trunk import TrunkModel, max_positions


class PretrainingConfig(MethodConfig):
    """The keys of a pre-training method."""

    folder_kind = "encoder"

    loss_terms: ClassVar[tuple[str, ...]] = ()
    size_keys: ClassVar[tuple[str, ...]] = ("max_tokens",)  # the keys that determine an example's memory
    needs_pairs: ClassVar[bool] = False  # a document must have two segments, a query and what it should find

    @property
    def weights(self) -> dict[str, float]:
        return dict.fromkeys(self.loss_terms, 1.0)

    @abstractmethod
    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        """Build the batcher of documents for a vocabulary."""

    @property
    def positions(self) -> int:
        """How many of the trunk's positions the longest input needs."""
        return max(self.input_lengths.values())

    def longest_text(self, model: TrunkModel) -> int:
        # more tokens than in training only where all positions have been trained, as by Cross-Thought's offsets
        tokens = max_positions(model.trunk) if model.trains_every_position else self.positions
        return tokens - self.added_tokens

    @property
    def example_tokens(self) -> int:
        """The maximum number of tokens in an example."""
        return sum(self.input_lengths.values())

    @property
    def needs_trained_encoder(self) -> bool:
        """Whether the method is useful only with a trained encoder, named in `init_from`."""
        return False

    @property
    def needs_dialogues(self) -> bool:
        """Whether the segments must be utterances, each a reply to the previous one."""
        return False


class InputConfig(PretrainingConfig):
    """A method whose inputs have at most `max_tokens` tokens, special tokens included."""

    max_tokens: int = Field(512, ge=8)

    @property
    def input_lengths(self) -> dict[str, int]:
        return {"method.max_tokens": self.max_tokens}


class BlockConfig(InputConfig):
    """Whole sentences packed into blocks; `complete` blocks may cross documents, `complete_doc` ones do not."""

    blocks: Literal["complete", "complete_doc"] = "complete"
