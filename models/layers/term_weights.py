"""The weights of a vocabulary's terms in texts, pooled over a text's positions."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepsiam.models.layers.losses import ALIGNED

TermPooling = Literal["max", "sum"]

# The devices where the gradient of a maximum, which is 0 but for one position for each term of a text, is a sparse
# matrix. On a GPU dense products are cheap, and nonzero() makes the host wait.
SPARSE_ON = ("cpu",)


def vocabulary_weights(
    hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, pooling: TermPooling, columns: int | None = None
) -> Tensor:
    """Pool log(1 + relu(hidden @ weight.T + bias)) over the positions of each text, for every term.

    The logits [B, T, V] never exist: terms are computed `columns` at a time, in the forward and in the backward pass.
    The logarithm is monotone, so the maximum is taken of the logits.

    Args:
        hidden: [B, T, H], any float dtype.
        weight: [V, H], the dtype of hidden.
        bias: [V], the dtype of hidden.
        mask: bool [B, T], true at the positions that count.
        pooling: how a term's weights at these positions become one.
        columns: terms in memory at a time; by default logits of about 8 MB of fp32 on a CPU, and 512 MB of half
            precision elsewhere.

    Returns:
        [B, V], fp32 (fp64 for fp64 inputs), at least 0.
    """
    if columns is None:
        columns = (2**21 if hidden.device.type == "cpu" else 2**28) // max(1, mask.numel())
    columns = max(1, min(columns, len(weight)) // ALIGNED) * ALIGNED  # as in `linear_cross_entropy`
    return _VocabularyWeights.apply(hidden, weight, bias, mask, pooling, columns)


class _VocabularyWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, pooling: TermPooling, columns: int
    ) -> Tensor:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        pooled = hidden.new_empty(len(hidden), len(weight), dtype=dtype)
        # the logits are not saved for the backward pass: a maximum needs its positions alone, a sum computes them anew
        places = mask.new_empty(pooled.shape if pooling == "max" else 0, dtype=torch.int32)
        for part in _slices(len(weight), columns):
            logits = _logits(hidden, weight[part], bias[part], mask)
            if pooling == "max":
                largest, place = logits.max(dim=1)
                pooled[:, part], places[:, part] = largest.to(dtype).log1p_(), place
            else:
                pooled[:, part] = logits.to(dtype).log1p_().sum(dim=1)
        ctx.save_for_backward(hidden, weight, bias, mask, pooled, places)
        ctx.pooling, ctx.columns = pooling, columns
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, mask, pooled, places = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if ctx.pooling == "max" and hidden.device.type in SPARSE_ON:
            d_largest = _largest_gradient(grad, pooled)
            d_logits = _at_places(d_largest, places, mask.shape[1])
            d_hidden = torch.sparse.mm(d_logits, weight.to(grad.dtype)).view_as(hidden) if needs[0] else None
            d_weight = torch.sparse.mm(d_logits.T, hidden.flatten(0, 1).to(grad.dtype)) if needs[1] else None
            gradients = d_hidden, d_weight, d_largest.sum(dim=0) if needs[2] else None
            return *(None if d is None else d.to(hidden.dtype) for d in gradients), None, None, None
        d_hidden = torch.zeros_like(hidden, dtype=grad.dtype) if needs[0] else None
        d_weight = torch.empty_like(weight) if needs[1] else None
        d_bias = torch.empty_like(bias) if needs[2] else None
        for part in _slices(len(weight), ctx.columns):
            if ctx.pooling == "max":
                d_largest = _largest_gradient(grad[:, part], pooled[:, part])
                d_logits = hidden.new_zeros(*mask.shape, d_largest.shape[1])
                d_logits.scatter_(1, places[:, None, part].long(), d_largest[:, None].to(hidden.dtype))
            else:
                logits = _logits(hidden, weight[part], bias[part], mask).to(grad.dtype)
                d_logits = grad[:, None, part] / (1 + logits)
                d_logits = d_logits.masked_fill_(logits == 0, 0.0).to(hidden.dtype)  # relu has no gradient there
            if d_hidden is not None:
                d_hidden += d_logits @ weight[part]
            if d_weight is not None:
                d_weight[part] = d_logits.flatten(0, 1).T @ hidden.flatten(0, 1)
            if d_bias is not None:
                d_bias[part] = d_logits.sum(dim=(0, 1))
        return None if d_hidden is None else d_hidden.to(hidden.dtype), d_weight, d_bias, None, None, None


def _largest_gradient(grad: Tensor, pooled: Tensor) -> Tensor:
    """Return the gradient of the largest logits x, [B, V]: that of log(1 + x) times 1 / (1 + x) = exp(-log(1 + x))."""
    return (grad * (-pooled).exp()).masked_fill_(pooled == 0, 0.0)


def _at_places(d_largest: Tensor, places: Tensor, positions: int) -> Tensor:
    """Return the gradient of all logits, [B * T, V], sparse, from that of the largest at their positions."""
    texts, terms = d_largest.nonzero(as_tuple=True)
    rows = texts * positions + places[texts, terms]
    size = len(d_largest) * positions, d_largest.shape[1]
    indices = torch.stack([rows, terms])
    # unchecked: rows and terms are in range by construction, and the check reads all of them
    return torch.sparse_coo_tensor(indices, d_largest[texts, terms], size, check_invariants=False)


def _slices(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    """Return relu(logits) [B, T, c], 0 at masked positions."""
    return F.linear(hidden, weight, bias).relu_().masked_fill_(~mask[:, :, None], 0.0)


def own_vocabulary_weights(
    hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, terms: Tensor, pooling: TermPooling
) -> Tensor:
    """Return the `vocabulary_weights` of each text's own terms, 0 for all others, without computing the others.

    `terms`, int64 [B, T], are the text's own; those outside `mask` do not count.
    """
    term_embeddings = F.embedding(terms, weight).transpose(1, 2)
    logits = hidden @ term_embeddings + bias[terms][:, None]  # [B, T, T]: of each position, each term
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).relu().masked_fill(~mask[:, :, None], 0.0)
    pooled = logits.amax(dim=1).log1p() if pooling == "max" else logits.log1p().sum(dim=1)
    # a term that occurs twice has two equal weights here: "max" keeps one, a sum would count it twice
    return scatter_weights(pooled, mask, terms, len(weight), "max")


def scatter_weights(weights: Tensor, mask: Tensor, terms: Tensor, size: int, pooling: TermPooling) -> Tensor:
    """Pool the weights [B, T] of each text's tokens, at least 0, by term: [B, size]; 0 for terms not in the text."""
    weights = weights.masked_fill(~mask, 0.0)
    return weights.new_zeros(len(weights), size).scatter_reduce(
        1, terms, weights, "amax" if pooling == "max" else "sum"
    )
