"""The keys of a recipe's `method`: a class for each kind of training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator


class Section(BaseModel):
    """A part of a recipe; unknown keys are errors, and numbers are finite ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Inputs(Section):
    """What a method reads is at most so long, special tokens included."""

    max_tokens: int = Field(512, ge=8)

    @property
    def positions(self) -> int:
        """How many positions the longest input takes of the trunk's."""
        return self.max_tokens

    @property
    def example_tokens(self) -> int:
        """How many tokens an example has at most."""
        return self.positions


class MaskedBlocks(Inputs):
    """Whole sentences packed into blocks; `complete` blocks may cross documents, `complete_doc` ones do not."""

    blocks: Literal["complete", "complete_doc"] = "complete"


class Mlm(MaskedBlocks):
    """Masked language modelling alone: the baseline of the SEED paper ("RoBERTa (Ours)")."""

    name: Literal["mlm"]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"mlm": 1.0}


class SeedWeights(Section):
    """Weights of SEED's two token-mean losses; the paper sums them (equation 11), its code halves each."""

    mlm: float = Field(1.0, ge=0)
    decoder: float = Field(1.0, ge=0)


class Seed(MaskedBlocks):
    """SEED pre-training: masked language modelling and reconstruction by a weak decoder."""

    name: Literal["seed"]
    decoder_layers: PositiveInt = 3
    window: PositiveInt | Literal["all"] = 2
    variant: Literal["paper", "released"] = "paper"
    cls: bool = True  # false: the decoder hears nothing of the encoder
    freeze_encoder: bool = False  # true: only the decoder learns
    loss_weights: SeedWeights = SeedWeights()

    @property
    def mlm(self) -> bool:
        """Whether masked words are a loss: not at weight 0, nor where the encoder is frozen."""
        return self.loss_weights.mlm > 0 and not self.freeze_encoder

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term that is computed."""
        return self.loss_weights.model_dump(exclude=set() if self.mlm else {"mlm"})


class Clm(MaskedBlocks):
    """Causal language modelling of the same blocks, unmasked; asks for `trunk.is_decoder: true`."""

    name: Literal["clm"]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"clm": 1.0}


class Ict(Section):
    """The inverse cloze task: a sentence finds the passage that it was taken from."""

    name: Literal["ict"]
    max_tokens: int = Field(288, ge=8)
    max_query_tokens: int = Field(64, ge=8)
    remove: float = Field(0.9, ge=0, le=1)  # in how many of the cases the passage is shown without the sentence

    @property
    def positions(self) -> int:
        """How many positions the longest input takes of the trunk's."""
        return max(self.max_tokens, self.max_query_tokens)

    @property
    def example_tokens(self) -> int:
        """How many tokens an example has at most."""
        return self.max_tokens + self.max_query_tokens

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"ict": 1.0}


class SkipThought(Inputs):
    """Skip-Thought: from a sentence's vector, two decoders write the sentences before and after it."""

    name: Literal["skip_thought"]
    max_tokens: int = Field(64, ge=8)
    decoder_layers: PositiveInt = 6

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"previous": 1.0, "next": 1.0}


class CrossThought(Section):
    """Cross-Thought: words masked in short sequences, recovered through the other sequences' special tokens."""

    name: Literal["cross_thought"]
    sequences: PositiveInt = 500  # of an example
    sequence_tokens: PositiveInt = 64  # of a sequence, beside its special tokens
    special_tokens: PositiveInt = 5
    activation_checkpointing: bool = False  # a sixth of the memory for a third more time

    @property
    def positions(self) -> int:
        """How many positions the longest input takes of the trunk's."""
        return self.special_tokens + self.sequence_tokens

    @property
    def example_tokens(self) -> int:
        """How many tokens an example has at most."""
        return self.sequences * self.positions

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"mlm": 1.0}


class RetroMae(MaskedBlocks):
    """RetroMAE: masked words, and every word by a one-layer decoder that is shown half of the others."""

    name: Literal["retromae"]
    encoder_mask: float = Field(0.3, gt=0, lt=1)
    decoder_mask: float = Field(0.5, ge=0, le=1)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"mlm": 1.0, "decoder": 1.0}


class Condenser(MaskedBlocks):
    """Condenser: masked words, by the encoder and by a head on its early tokens and late [CLS]."""

    name: Literal["condenser"]
    early_layers: PositiveInt | None = None  # null: half of the trunk's
    head_layers: PositiveInt = 2

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"mlm": 1.0, "head": 1.0}


class Poly(Inputs):
    """Poly-encoder pre-training: of pairs of texts, masked words in one batch, and in the next which pairs are true."""

    name: Literal["poly"]
    pairs: Literal["sentences", "spans", "utterances"] = "sentences"
    tokens: PositiveInt = 32000  # the most of a group of pairs, padding included: an example, so batch.micro is 1

    @property
    def example_tokens(self) -> int:
        """How many tokens an example has at most."""
        return self.tokens

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"mlm": 1.0, "next": 1.0}


class Siamese(Section):
    """Fine-tuning of one shared encoder on labelled pairs."""

    name: Literal["siamese"]
    loss: Literal["softmax", "hinge"] = "softmax"
    similarity: Literal["dot", "cosine"] = "dot"
    temperature: PositiveFloat = 1.0
    pooling: Literal["cls", "mean", "last"] = "cls"
    special_tokens: PositiveInt = 1  # [CLS], and those that the encoder's pre-training had beside it: Cross-Thought's
    negatives_per_query: int = Field(0, ge=0)  # drawn at random among the split's documents not relevant to it
    max_query_tokens: int = Field(64, ge=3)
    max_document_tokens: int = Field(512, ge=3)

    @model_validator(mode="after")
    def _hinge_has_negatives(self) -> Siamese:
        if self.loss == "hinge" and not self.negatives_per_query:
            raise ValueError("method.loss=hinge compares with sampled negatives: set method.negatives_per_query")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {self.loss: 1.0}


class ProbeKeys(Section):
    """What is measured beside the losses, and after how many steps; see trainer/probe.py."""

    collection: Path  # a tokenised BEIR folder
    split: str
    every: PositiveInt
    queries: PositiveInt = 200
    documents: PositiveInt = 2000  # the relevant ones of these queries, and others up to so many
    max_tokens: int = Field(128, ge=3)


PretrainMethod = Seed | Mlm | Clm | Ict | SkipThought | CrossThought | RetroMae | Condenser | Poly
