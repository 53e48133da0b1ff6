"""SEED's weak decoder (Lu et al., 2021, section 3.2): few layers, a short attention window, the [CLS] state."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepsiam.models.layers.local_attention import local_attention
from deepsiam.models.layers.shape import Shape, initialise
from deepsiam.models.layers.transformer import FeedForward

Window = int | Literal["all"]
Variant = Literal["paper", "released"]


class WeakDecoder(nn.Module):
    """Predict token t + 1 at slot t from the unmasked tokens t - k + 1 .. t and the encoder's [CLS] state h_0.

    paper: h_0 itself, without a projection, replaces the [CLS] token's embedding in slot 0. Like any slot, slot 0 gets
    its position (0), the embedding LayerNorm and dropout, and in every layer every slot attends to slot 0.
    Post-LayerNorm layers: "the rest is the same with the encoder".

    released: slot 0 holds the [CLS] token's embedding, and every slot attends to it too; h_0 enters every layer by
    a cross-attention to this one key. Pre-LayerNorm layers and a final LayerNorm.

    Without `cls` (section 4.3, "no-CLS") neither variant reads h_0, and slot 0 holds the [CLS] token's embedding.
    """

    def __init__(
        self, shape: Shape, max_tokens: int, layers: int, window: Window, variant: Variant, cls: bool = True
    ) -> None:
        super().__init__()
        released = variant == "released"
        self.released = released
        self.positions = nn.Embedding(max_tokens, shape.hidden_size)  # its own, as in the released code
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.dropout = nn.Dropout(shape.hidden_dropout_prob)
        self.layers = nn.ModuleList(
            ReleasedLayer(shape, window, cls) if released else PaperLayer(shape, window) for _ in range(layers)
        )
        # pre-LayerNorm layers leave their sum unnormalised; post-LayerNorm layers end with a norm
        self.final_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps) if released else nn.Identity()
        initialise(self, shape.initializer_range)

    def forward(self, cls: Tensor | None, ids: Tensor, embedding: Tensor) -> Tensor:
        """Return states [B, T, H]: the product of slot t and `embedding` predicts token t + 1.

        They are made of h_0 of the masked input [B, H] (None without `cls`), the unmasked `ids` int64 [B, T], and the
        encoder's token `embedding` [V, H].
        """
        slots = F.embedding(ids, embedding)  # [B, T, H], by the encoder's table, which is no parameter of this module
        if cls is not None:
            cls = cls[:, None]  # [B, 1, H]
            if not self.released:
                slots = torch.cat([cls, slots[:, 1:]], dim=1)
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device))  # [T, H]
        x = self.dropout(self.norm(slots + positions))
        for layer in self.layers:
            x = layer(x, cls)
        return self.final_norm(x)


class PaperLayer(nn.Module):
    """A post-LayerNorm Transformer layer with local self-attention."""

    def __init__(self, shape: Shape, window: Window) -> None:
        super().__init__()
        self.attention = LocalSelfAttention(shape, window)
        self.attention_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.feed_forward = FeedForward(shape)
        self.feed_forward_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.dropout = nn.Dropout(shape.hidden_dropout_prob)

    def forward(self, x: Tensor, cls: Tensor | None) -> Tensor:
        """[B, T, H] -> [B, T, H]; h_0, if any, is already slot 0 of x."""
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class ReleasedLayer(nn.Module):
    """A pre-LayerNorm Transformer layer with local self-attention and, with `cls`, a cross-attention to h_0."""

    def __init__(self, shape: Shape, window: Window, cls: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.attention = LocalSelfAttention(shape, window)
        self.cross_attention = ClsAttention(shape) if cls else None
        self.feed_forward_norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.feed_forward = FeedForward(shape)
        self.dropout = nn.Dropout(shape.hidden_dropout_prob)

    def forward(self, x: Tensor, cls: Tensor | None) -> Tensor:
        """[B, T, H] and h_0 [B, 1, H] -> [B, T, H]."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        if self.cross_attention is not None:
            x = x + self.dropout(self.cross_attention(cls, x.shape[1]))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class LocalSelfAttention(nn.Module):
    """Multi-head self-attention of slot t to {0} and [t - window + 1 .. t], or to all of [0 .. t]."""

    def __init__(self, shape: Shape, window: Window) -> None:
        super().__init__()
        self.heads = shape.num_attention_heads
        self.window = window
        self.dropout = shape.attention_probs_dropout_prob
        self.qkv = nn.Linear(shape.hidden_size, 3 * shape.hidden_size)
        self.out = nn.Linear(shape.hidden_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)  # each [B, T, heads, d]
        dropout = self.dropout if self.training else 0.0
        if self.window == "all":
            query, key, value = (y.transpose(1, 2) for y in (query, key, value))
            context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
            context = context.transpose(1, 2)
        else:
            context = local_attention(query, key, value, self.window, dropout)
        return self.out(context.flatten(2))


class ClsAttention(nn.Module):
    """Cross-attention to the single key h_0.

    The softmax over one key is 1 for any query, so the query and key projections of the released code have no
    effect and a gradient of exactly 0; they are left out. Only the attention's dropout remains: it hides h_0 from
    a head at a position.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.num_attention_heads
        self.dropout = shape.attention_probs_dropout_prob
        self.value = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.out = nn.Linear(shape.hidden_size, shape.hidden_size)

    def forward(self, cls: Tensor, length: int) -> Tensor:
        """h_0 [B, 1, H] -> [B, length, H], or [B, 1, H] if without dropout all positions are equal."""
        value = self.value(cls)
        if self.training and self.dropout > 0:
            # the attention weights, all 1, that dropout would get: [B, T, heads, 1]
            weights = F.dropout(value.new_ones(len(cls), length, self.heads, 1), self.dropout)
            value = (weights * value.unflatten(-1, (self.heads, -1))).flatten(2)
        return self.out(value)
