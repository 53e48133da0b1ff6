"""The base of models that read several texts together: one input, one pooled state, a head."""

from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from deepsiam.models.encode import encode_texts
from deepsiam.models.layers.pooling import pool
from deepsiam.models.layers.shape import initialise, layer_norm_eps, setting
from deepsiam.models.trunk import TrunkModel, require_bidirectional, token_types

JointPooling = Literal["cls", "last", "mean", "max"]  # ParlAI's first, mean and max, and decoders' last
Activation = Literal["tanh", "relu", "gelu"]


class JointEncoder(TrunkModel):
    """A trunk and a head `head.` on the pooled state of an input of several texts."""

    def __init__(
        self,
        trunk: PreTrainedModel,
        pooling: JointPooling,
        types: int | None,
        *,
        outputs: int = 1,
        activation: Activation | None = "tanh",
        norm: bool = False,
    ) -> None:
        """Initialise the head like BERT's layers.

        Args:
            trunk: reads the texts.
            pooling: which of its states the head reads.
            types: how many token types tell the texts apart, if the trunk has that many; None: all have type 0.
            outputs: how many numbers the head computes.
            activation: of the hidden layer, as in BERT's pooler; None: there is no such layer.
            norm: whether a LayerNorm follows it.
        """
        super().__init__()
        if pooling == "cls":
            require_bidirectional(trunk, "set method.pooling=last")
        self.trunk, self.pooling = trunk, pooling
        width, dropout = trunk.config.hidden_size, setting(trunk.config, "hidden_dropout_prob", 0.0)
        hidden = [] if activation is None else [nn.Linear(width, width), ACT2FN[activation]]
        if norm:
            hidden.append(nn.LayerNorm(width, eps=layer_norm_eps(trunk) or 1e-5))  # PyTorch's default
        self.head = nn.Sequential(*hidden, nn.Dropout(dropout), nn.Linear(width, outputs))
        initialise(self.head, setting(trunk.config, "initializer_range", 0.02))
        self.has_types = types is not None and token_types(trunk) >= types

    def outputs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Return the head's outputs, at least fp32 [N, outputs]; ids int64, mask bool and types int64 are [N, T]."""
        states = encode_texts(self.trunk, ids, mask, types if self.has_types else None)
        pooled = pool(states, mask, self.pooling).to(states.dtype)  # back to the precision of the head's weights
        outputs: Tensor = self.head(pooled)
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32))
