"""BERT's language-model head."""

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from deepsiam.models.layers.losses import linear_cross_entropy
from deepsiam.models.layers.shape import Shape, initialise


class LmHead(nn.Module):
    """Dense layer, activation, LayerNorm, projection by the tied token embedding, and an output bias."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.activation = ACT2FN[shape.hidden_act]
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))
        initialise(self, shape.initializer_range)

    def transform(self, hidden: Tensor) -> Tensor:
        """Return the states that are projected to the vocabulary, of the shape of hidden, [..., H]."""
        return self.norm(self.activation(self.dense(hidden)))

    def forward(self, hidden: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
        """Return the summed cross-entropy of hidden [N, H] against targets [N], with the tied embedding [V, H]."""
        return linear_cross_entropy(self.transform(hidden), embedding, self.bias, targets)
