"""BERT's Transformer layer in the trunk's shape, for the heads and decoders that methods put on top of it."""

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN

from deepsiam.models.layers.shape import Shape


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each added to its input and normalised (post-LayerNorm, as in BERT).

    The queries and the context that they attend to may be different; for self-attention pass the same tensor twice.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.attention_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.feed_forward = FeedForward(shape)
        self.feed_forward_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.dropout = nn.Dropout(shape.hidden_dropout_prob)

    def forward(self, x: Tensor, context: Tensor, visible: Tensor) -> Tensor:
        """Queries x [B, T, H], a context [B, S, H] and bool visible [B, T or 1, S] -> [B, T, H]."""
        x = self.attention_norm(x + self.dropout(self.attention(x, context, visible)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Attention(nn.Module):
    """Multi-head attention from queries to a context."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.num_attention_heads
        self.dropout = shape.attention_probs_dropout_prob
        self.query = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.key_value = nn.Linear(shape.hidden_size, 2 * shape.hidden_size)
        self.out = nn.Linear(shape.hidden_size, shape.hidden_size)

    def forward(self, x: Tensor, context: Tensor, visible: Tensor) -> Tensor:
        """As in `TransformerLayer`; every query must see at least one slot, or a GPU kernel may return NaN."""
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, heads, T, d]
        key, value = self.key_value(context).unflatten(-1, (2, self.heads, -1)).transpose(1, 3).unbind(2)  # likewise, S
        dropout = self.dropout if self.training else 0.0
        states = F.scaled_dot_product_attention(query, key, value, visible[:, None], dropout)  # one mask for all heads
        return self.out(states.transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    """The trunk's feed-forward block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(
            nn.Linear(shape.hidden_size, shape.intermediate_size),
            ACT2FN[shape.hidden_act],
            nn.Linear(shape.intermediate_size, shape.hidden_size),
        )
