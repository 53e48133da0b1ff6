"""The cross-encoder: a query and a document read together, for a score or for classes (Poly-encoders, section 4.3)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from models.batching.framing import PairFraming
from models.encode import encode_texts
from models.interface import Vocabulary
from models.layers.pooling import pool
from models.layers.shape import initialise, setting
from models.matching.pair_model import PairModel, PairModelConfig
from models.trunk import require_bidirectional, token_types

Activation = Literal["tanh", "relu", "gelu"]


class CrossEncoderConfig(PairModelConfig):
    """The keys of a model that reads both texts together; the last five describe published cross-encoders."""

    name: Literal["cross_encoder"]
    pooling: Literal["cls", "mean", "max"] = "cls"  # ParlAI's reductions: first, mean, max
    hidden_layer: bool = True  # a linear layer and tanh before the last one (BERT's pooler); false: as the paper
    hidden_activation: Activation = "tanh"  # of the hidden layer: ELECTRA, DeBERTa and ModernBERT: gelu
    hidden_norm: bool = False  # a LayerNorm after it, as in ModernBERT
    separators: Literal[1, 2] = 1  # [SEP]s between the two texts: 2 in RoBERTa's pairs
    token_types: bool = True  # tell the texts apart by their types, if the trunk has 2; false: all tokens have type 0
    max_pair_tokens: int | None = Field(None, ge=8)  # a pair's; the longer of its texts loses what is too much

    @model_validator(mode="after")
    def _hidden_keys_have_a_layer(self) -> CrossEncoderConfig:
        if not self.hidden_layer and (self.hidden_activation != "tanh" or self.hidden_norm):
            raise ValueError(
                "method.hidden_activation and method.hidden_norm are of the hidden layer: leave them out, or "
                "method.hidden_layer=false"
            )
        return self

    @property
    def input_lengths(self) -> dict[str, int]:
        """The pair, whose two texts share one [CLS]."""
        pair = self.max_query_tokens + self.max_document_tokens - 2 + self.separators
        if self.max_pair_tokens is not None and self.max_pair_tokens < pair:
            return {"method.max_pair_tokens": self.max_pair_tokens}
        shared = "" if self.separators == 2 else " - 1"
        return {f"method.max_query_tokens + method.max_document_tokens{shared}": pair}

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        """A pair is one sequence."""
        texts = self.query_framing(vocabulary), self.document_framing(vocabulary)
        return PairFraming(*texts, self.separators, self.max_pair_tokens)

    def model(self, trunk: PreTrainedModel) -> CrossEncoder:
        """Build the model around a trunk; raise ValueError where it pools [CLS] and the trunk is causal."""
        return CrossEncoder(trunk, self)


class CrossEncoder(PairModel):
    """A trunk and a head `head.` on the pooled state of a pair."""

    keys: CrossEncoderConfig

    def __init__(self, trunk: PreTrainedModel, keys: CrossEncoderConfig) -> None:
        """Initialise the head like BERT's layers.

        Raises:
            ValueError: it pools [CLS] and the trunk is causal.
        """
        super().__init__()
        if keys.pooling == "cls":
            require_bidirectional(trunk, "set method.pooling=mean")
        self.trunk, self.keys = trunk, keys
        width, dropout = trunk.config.hidden_size, setting(trunk.config, "hidden_dropout_prob", 0.0)
        first: list[nn.Module] = []
        if keys.hidden_layer:
            first = [nn.Linear(width, width), ACT2FN[keys.hidden_activation]]
        if keys.hidden_norm:
            first.append(nn.LayerNorm(width, eps=setting(trunk.config, "layer_norm_eps")))
        self.head = nn.Sequential(*first, nn.Dropout(dropout), nn.Linear(width, keys.classes or 1))
        initialise(self.head, setting(trunk.config, "initializer_range", 0.02))
        self.activation: nn.Module = nn.Identity()  # of a score; the library of a published model may apply a sigmoid
        self.has_types = keys.token_types and token_types(trunk) >= 2

    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Score pairs, ids int64, mask bool and types int64 [P, T]: fp32 [P], or logits [P, C] of classes."""
        states = encode_texts(self.trunk, ids, mask, types if self.has_types else None)
        pooled = pool(states, mask, self.keys.pooling).to(states.dtype)
        scores = self.head(pooled)
        scores = self.activation(scores.to(torch.promote_types(scores.dtype, torch.float32)))
        return scores if self.keys.classes else scores[:, 0]
