"""The loss over a vocabulary: a scalar SUM in fp32 over target tokens."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepsiam.models.interface import IGNORED

ALIGNED = 64  # on a GPU a row of logits is a multiple of this: matrix units need it to be fast (not measured)


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, chunk: int | None = None
) -> Tensor:
    """Sum -log softmax(hidden @ weight.T + bias)[target], with at most `chunk` rows of logits in memory.

    The forward pass computes the gradient, chunk by chunk, as softmax minus one-hot, and sums it in fp32; the backward
    pass multiplies it by the incoming gradient and casts. So a loss scale (2**16 is too large for fp16) and the
    division by the number of targets are applied in fp32 only. Exponentials are computed in place, in the logits'
    dtype.

    Args:
        hidden: [N, H], any float dtype.
        weight: [V, H], the dtype of hidden.
        bias: [V] or None, the dtype of hidden.
        targets: int64 [N]; rows whose target is -100 (`IGNORED`) add no loss and get no gradient.
        chunk: rows of logits in memory at a time; by default 8 MB of fp32 on a CPU, where small chunks suit caches and
            allocator, but at least 256 rows; 512 MB elsewhere, but at least 1,024 rows.

    Returns:
        a scalar, fp32 (fp64 for fp64 inputs).
    """
    on_gpu = hidden.device.type != "cpu"
    if chunk is None:
        size = hidden.element_size() * len(weight)
        chunk = max(1024, 2**29 // size) if on_gpu else max(256, 2**21 // len(weight))
    # whether gradients are wanted is asked here: inside a Function's forward, grad mode is always off
    return _LinearCrossEntropy.apply(hidden, weight, bias, targets, chunk, torch.is_grad_enabled(), on_gpu)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        chunk: int,
        differentiate: bool,
        on_gpu: bool,
    ) -> Tensor:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        inputs = (hidden, weight, bias)
        d_hidden, d_weight, d_bias = (
            torch.zeros_like(x, dtype=dtype) if differentiate and is_needed and x is not None else None
            for x, is_needed in zip(inputs, ctx.needs_input_grad, strict=False)  # of seven arguments, the first three
        )
        columns = len(weight)
        if on_gpu and (extra_columns := -columns % ALIGNED):
            # a bias of -inf makes the exponentials of the added columns 0
            bias = F.pad(weight.new_zeros(columns) if bias is None else bias, (0, extra_columns), value=-torch.inf)
            weight = F.pad(weight, (0, 0, 0, extra_columns))
        loss = hidden.new_zeros((), dtype=dtype)
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)
            states, index = hidden[rows], targets[rows].clamp(min=0)  # [c, H], [c]; column 0 stands in for IGNORED
            is_target = targets[rows, None] != IGNORED  # [c, 1]
            logits = F.linear(states, weight, bias)  # [c, V]
            top = logits.amax(dim=1, keepdim=True)  # [c, 1]; without it, exponentials overflow in fp16
            gap = top.to(dtype) - logits.gather(1, index[:, None])  # [c, 1]
            exp = logits.sub_(top).exp_()  # [c, V], in the memory of the logits
            total = exp.sum(dim=1, keepdim=True, dtype=dtype)  # [c, 1]
            loss += (total.log() + gap).masked_fill(~is_target, 0.0).sum()
            # The softmax, exp * scale, is never materialised: the products below use exp, and the one-hot is
            # subtracted exactly from their sums, as a row of the weight or of the states.
            scale = is_target / total  # [c, 1], fp32
            if d_hidden is not None:
                d_hidden[rows] = (exp @ weight) * scale - weight[index] * is_target
            if d_weight is not None:
                d_weight += (exp.T @ (states * scale).to(exp.dtype))[:columns]
            if d_bias is not None:  # as a product: a sum of exp * scale would make another [c, V]
                d_bias += (scale.to(exp.dtype).T @ exp)[0, :columns]
            if not on_gpu:
                _subtract_one_hot(d_weight, d_bias, states, index, is_target)
        if on_gpu:  # once for all chunks: on a GPU, index_put_ sorts the indices, which is many kernels
            _subtract_one_hot(d_weight, d_bias, hidden, targets.clamp(min=0), targets[:, None] != IGNORED)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.dtypes = [None if x is None else x.dtype for x in inputs]
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return (*(None if d is None else (d * grad).to(dtype) for d, dtype in saved), *[None] * 4)


def _subtract_one_hot(
    d_weight: Tensor | None, d_bias: Tensor | None, states: Tensor, index: Tensor, is_target: Tensor
) -> None:
    """Subtract states [N, H] from the rows `index` [N] of d_weight [V, H], and 1 from those of d_bias."""
    if d_weight is not None:
        d_weight.index_put_((index,), states * -is_target.to(d_weight.dtype), accumulate=True)
    if d_bias is not None:
        d_bias.index_put_((index,), -is_target[:, 0].to(d_bias.dtype), accumulate=True)
