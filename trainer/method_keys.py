"""The keys of a recipe's `method`: a class for each kind of training."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator


class Section(BaseModel):
    """A part of a recipe; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MaskedBlocks(Section):
    """Whole sentences packed into blocks; `complete` blocks may cross documents, `complete_doc` ones do not."""

    max_tokens: int = Field(512, ge=8)
    blocks: Literal["complete", "complete_doc"] = "complete"

    @property
    def positions(self) -> int:
        """How many positions the longest input takes of the trunk's."""
        return self.max_tokens


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
    loss_weights: SeedWeights = SeedWeights()

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return self.loss_weights.model_dump()


class Siamese(Section):
    """Fine-tuning of one shared encoder on labelled pairs."""

    name: Literal["siamese"]
    loss: Literal["softmax", "hinge"] = "softmax"
    similarity: Literal["dot", "cosine"] = "dot"
    temperature: PositiveFloat = 1.0
    pooling: Literal["cls", "mean"] = "cls"
    negatives_per_query: int = Field(0, ge=0)  # drawn at random among the split's documents not relevant to it
    max_query_tokens: PositiveInt = 64
    max_document_tokens: PositiveInt = 512

    @model_validator(mode="after")
    def _hinge_has_negatives(self) -> Siamese:
        if self.loss == "hinge" and not self.negatives_per_query:
            raise ValueError("method.loss=hinge compares with sampled negatives: set method.negatives_per_query")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {self.loss: 1.0}


PretrainMethod = Seed | Mlm
