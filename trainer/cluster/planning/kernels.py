"""The kernels that PyTorch starts on a device: how often, the bytes they move and the FLOPs they compute.

Counted without the device, from tensors that have a shape and no memory, on the meta device or in FakeTensorMode. An
operation counts as one kernel. It reads its inputs and writes its outputs once, whatever its kernel keeps in caches.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from deepsiam.models import attention

# operations that start no kernel, besides views
NO_KERNEL = {
    "_unsafe_view",
    "alias",
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "lift_fresh",
    "new_empty",
    "new_empty_strided",
    "record_stream",
    "set_",
}
OVERWRITE = {"bernoulli_", "copy_", "fill_", "normal_", "uniform_", "zero_"}  # they do not read what they write
# they read the rows that they return, not the whole table
LOOK_UP = {"embedding", "gather", "index", "index_select"}
TEXT_BY_TEXT = {"_flash_attention_forward": 2, "_flash_attention_backward": 5}  # attention within texts: its products
ADD_ROWS = {"index_add_", "index_copy_", "index_put_", "scatter_", "scatter_add_"}  # they touch the rows that are given


@dataclass(frozen=True)
class Kernel:
    """One kernel."""

    name: str  # of PyTorch's operation, without `aten.`
    bytes: int  # that it reads and writes
    flops: int  # of matrix products and attention; 0 for all others


class Kernels(TorchDispatchMode):
    """Lists the kernels that are started on devices of one type within a `with` block."""

    def __init__(self, device_type: str = "meta") -> None:
        super().__init__()
        self.device_type = device_type
        self.started: list[Kernel] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Execute an operation and list its kernel."""
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        name = function._schema.name.partition("::")[2]
        outputs = out if function._schema.returns else _written(function, args, kwargs)
        if not function.is_view and name not in NO_KERNEL and self._runs_here(args, kwargs, outputs):
            kernel = Kernel(name, self._bytes(name, args, kwargs, outputs), _flops(function, args, kwargs, out))
            self.started.append(kernel)
        return out

    def _runs_here(self, args: Any, kwargs: Any, out: Any) -> bool:
        # a copy from another device runs there
        return bool(self._tensors(out)) and all(x.device.type == self.device_type for x in _tensors(args, kwargs)[:1])

    def _bytes(self, name: str, args: Any, kwargs: Any, out: Any) -> int:
        inputs, outputs = self._tensors(args, kwargs), self._tensors(out)
        if name in LOOK_UP or name in ADD_ROWS:
            rows = outputs if name in LOOK_UP else inputs[-1:]
            return 2 * sum(map(size, rows)) + sum(size(x) for x in inputs[1:] if not x.is_floating_point())
        inputs_read = inputs[1:] if name in OVERWRITE else inputs
        return sum(map(size, inputs_read)) + sum(map(size, outputs))

    def _tensors(self, *values: Any) -> list[torch.Tensor]:
        return [x for x in _tensors(*values) if x.device.type == self.device_type]


def _written(function: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments that an operation writes in place, such as the states of a fused optimizer."""
    values_by_name = {
        argument.name: value for argument, value in zip(function._schema.arguments, args, strict=False)
    } | kwargs
    names = (
        argument.name for argument in function._schema.arguments if argument.alias_info and argument.alias_info.is_write
    )
    return [values_by_name.get(name) for name in names]


def _tensors(*values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def size(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's distinct elements: expanded dimensions count once."""
    lengths = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not n)
    return math.prod(lengths) * tensor.element_size()


def _flops(function: Any, args: Any, kwargs: Any, out: Any) -> int:
    name = function._overloadpacket.__name__
    if name in TEXT_BY_TEXT:
        return _flops_of_texts(*(x for x in args if isinstance(x, torch.Tensor)), products=TEXT_BY_TEXT[name])
    formula = flop_registry.get(function._overloadpacket)
    return int(formula(*args, **kwargs, out_val=out)) if formula else 0


def _flops_of_texts(*tensors: torch.Tensor, products: int) -> int:
    """Return the FLOPs of attention within texts [S, heads, d] in one row, as if all were equally long."""
    tokens, heads, size_of_head = tensors[0].shape
    ends = next(x for x in tensors if x.dtype == torch.int32)
    return 2 * products * heads * size_of_head * tokens * tokens // max(1, len(ends) - 1)


plain_attention = F.scaled_dot_product_attention


@contextmanager
def attention_as_on_cuda() -> Iterator[None]:
    """Let tensors without memory attend by CUDA's kernels."""
    of_device = attention.has_flash
    attend_as_on_cuda()
    try:
        yield
    finally:
        F.scaled_dot_product_attention, attention.has_flash = plain_attention, of_device


def attend_as_on_cuda() -> None:
    """Let tensors without memory attend by CUDA's kernels from now on."""
    F.scaled_dot_product_attention = cuda_attention
    attention.has_flash = lambda device: device.type != "cpu"


def cuda_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attend by the kernel that torch chooses on CUDA in half precision: flash without a mask, else memory-efficient.

    For tensors without memory torch itself would choose plain products. Those on the CPU attend as ever.
    """
    if query.device.type == "cpu":
        return plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    aten, grad = torch.ops.aten, torch.is_grad_enabled()
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    out: torch.Tensor
    if attn_mask is None:
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return out
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -math.inf)
    attn_mask = F.pad(attn_mask, (0, -attn_mask.shape[-1] % 8))[..., : key.shape[2]]  # rows begin at 16 bytes
    bias = attn_mask.expand(*query.shape[:3], key.shape[2])
    out = aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, grad, dropout_p, is_causal, scale=scale
    )[0]
    return out
