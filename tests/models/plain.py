"""What the tests compare with: the same mathematics of one sequence, a position, a head, a token at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from models.mlm import LmHead
from models.transformer import Attention, TransformerLayer


def attention(attention: Attention, x: Tensor, context: Tensor, seen: Sequence[Sequence[int]]) -> Tensor:
    """Queries [T, H] attend to a context [S, H]; `seen[t]` are the slots that query t sees."""
    d = x.shape[1] // attention.heads
    query = attention.query(x)
    key, value = attention.key_value(context).split(x.shape[1], dim=-1)
    rows = []
    for t, slots in enumerate(seen):
        heads = []
        for h in range(attention.heads):
            part = slice(h * d, (h + 1) * d)
            weights = torch.stack([query[t, part] @ key[j, part] / d**0.5 for j in slots]).softmax(0)
            heads.append(sum(w * value[j, part] for w, j in zip(weights, slots, strict=True)))
        rows.append(torch.cat(heads))
    return attention.out(torch.stack(rows))


def transformer_layer(layer: TransformerLayer, x: Tensor, context: Tensor, seen: Sequence[Sequence[int]]) -> Tensor:
    """A post-LayerNorm layer without dropout."""
    x = layer.attention_norm(x + attention(layer.attention, x, context, seen))
    return layer.feed_forward_norm(x + layer.feed_forward(x))


def lm_loss(head: LmHead, states: Tensor, embedding: Tensor, targets: Sequence[int]) -> Tensor:
    """Sum of -log p(target) over full logits, states [n, H]."""
    logits = head.norm(head.activation(head.dense(states))) @ embedding.T + head.bias
    log_p = logits.log_softmax(-1)
    return -sum((log_p[i, target] for i, target in enumerate(targets)), log_p.sum() * 0)


def backbone(trunk: nn.Module, ids: np.ndarray) -> list[Tensor]:
    """The embeddings of one sequence by a stock BERT and the states after each of its layers, each [T, H]."""
    states = [trunk.embeddings(input_ids=torch.from_numpy(ids)[None])]
    for layer in trunk.encoder.layer:
        output = layer(states[-1])
        states.append(output[0] if isinstance(output, tuple) else output)
    return [state[0] for state in states]


def same_gradients(model: nn.Module, ours: Tensor, theirs: Tensor) -> None:
    """Assert that two losses pull alike at every parameter, to 1e-10."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    both = (torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (ours, theirs))
    for name, parameter, *gradients in zip(names, parameters, *both, strict=True):
        mine, other = (torch.zeros_like(parameter) if g is None else g for g in gradients)
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10, msg=name)
