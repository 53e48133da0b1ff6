"""The cross-encoder: a query and a document read together, for a score or for classes (Poly-encoders, section 4.3)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.batching.framing import PairFraming
from deepsiam.models.interface import Vocabulary, require_roles
from deepsiam.models.matching.joint_encoder import Activation, JointEncoder, JointPooling
from deepsiam.models.matching.pair_model import PairBatcher, PairModel, PairModelConfig


class CrossEncoderConfig(PairModelConfig):
    """The keys of a model that reads both texts together; the last five describe published cross-encoders."""

    folder_kind = "CrossEncoder"
    start_keys = (
        "pooling",
        "hidden_layer",
        "hidden_activation",
        "hidden_norm",
        "separators",
        "token_types",
        "max_pair_tokens",
    )

    name: Literal["cross_encoder"]
    pooling: JointPooling = "cls"
    hidden_layer: bool = True  # a linear layer and tanh before the last one (BERT's pooler); false: as the paper
    hidden_activation: Activation = "tanh"  # of the hidden layer: ELECTRA, DeBERTa and ModernBERT: gelu
    hidden_norm: bool = False  # a LayerNorm after it, as in ModernBERT
    separators: Literal[1, 2] | None = None  # [SEP]s between the two texts; null: as the tokenizer joins pairs
    token_types: bool = True  # tell the texts apart by their types, if the trunk has 2; false: all tokens have type 0
    max_pair_tokens: int | None = Field(None, ge=8)  # a pair's; the longer of its texts loses what is too much

    @model_validator(mode="after")
    def _hidden_keys_have_a_layer(self) -> CrossEncoderConfig:
        if not self.hidden_layer and (self.hidden_activation != "tanh" or self.hidden_norm):
            raise ValueError(
                "method.hidden_activation and method.hidden_norm need the hidden layer: leave them out, or "
                "method.hidden_layer=false"
            )
        return self

    @property
    def input_lengths(self) -> dict[str, int]:
        """The pair, whose two texts share one [CLS]."""
        pair = self.max_query_tokens + self.max_document_tokens - 2 + (self.separators or 1)
        if self.max_pair_tokens is not None and self.max_pair_tokens < pair:
            return {"method.max_pair_tokens": self.max_pair_tokens}
        shared = "" if self.separators == 2 else " - 1"
        return {f"method.max_query_tokens + method.max_document_tokens{shared}": pair}

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        (max_tokens,) = self.input_lengths.values()
        texts = self.query_framing(vocabulary), self.document_framing(vocabulary)
        return PairFraming(*texts, self.separators, max_tokens)

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> PairBatcher:
        if self.separators:
            require_roles(vocabulary, "cls", "sep")
        return super().batcher(vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> CrossEncoder:
        return CrossEncoder(trunk, self)


class CrossEncoder(JointEncoder, PairModel):
    """A trunk and a head `head.` on the pooled state of a pair."""

    keys: CrossEncoderConfig

    def __init__(self, trunk: PreTrainedModel, keys: CrossEncoderConfig) -> None:
        super().__init__(
            trunk,
            keys.pooling,
            2 if keys.token_types else None,
            outputs=keys.classes or 1,
            activation=keys.hidden_activation if keys.hidden_layer else None,
            norm=keys.hidden_norm,
        )
        self.keys = keys
        self.activation: nn.Module = nn.Identity()  # of a score; the library of a published model may apply a sigmoid

    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        scores: Tensor = self.activation(self.outputs(ids, mask, types))
        return scores if self.keys.classes else scores[:, 0]
