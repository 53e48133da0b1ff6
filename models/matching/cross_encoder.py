"""The cross-encoder: a query and a document read together, for a score or for classes (Poly-encoders, section 4.3)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.encode import encode_texts
from models.layers.pooling import pool
from models.layers.shape import initialise, setting
from models.matching.pair_model import PairModel, PairModelConfig
from models.trunk import require_bidirectional, token_types


class CrossEncoderConfig(PairModelConfig):
    """The keys of a model that reads both texts together."""

    name: Literal["cross_encoder"]
    pooling: Literal["cls", "mean", "max"] = "cls"  # ParlAI's reductions: first, mean, max
    hidden_layer: bool = True  # a linear layer and tanh before the last one (BERT's pooler); false: as the paper

    @property
    def input_lengths(self) -> dict[str, int]:
        """The pair, whose two texts share one [CLS]."""
        pair = self.max_query_tokens + self.max_document_tokens - 1
        return {"method.max_query_tokens + method.max_document_tokens - 1": pair}

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
        first = [nn.Linear(width, width), nn.Tanh()] if keys.hidden_layer else []
        self.head = nn.Sequential(*first, nn.Dropout(dropout), nn.Linear(width, keys.classes or 1))
        initialise(self.head, setting(trunk.config, "initializer_range", 0.02))
        self.has_types = token_types(trunk) >= 2

    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Score pairs, ids int64, mask bool and types int64 [P, T]: fp32 [P], or logits [P, C] of classes."""
        states = encode_texts(self.trunk, ids, mask, types if self.has_types else None)
        pooled = pool(states, mask, self.keys.pooling).to(states.dtype)
        scores = self.head(pooled)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return scores if self.keys.classes else scores[:, 0]
