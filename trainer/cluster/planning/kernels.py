"""The kernels that PyTorch starts on a device: how often, the bytes they move and the FLOPs they compute.

Counted without the device, from tensors that have a shape and no memory, on the meta device or in FakeTensorMode. An
operation counts as one kernel. It reads its inputs and writes its outputs once, whatever its kernel keeps in caches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

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
        if not function.is_view and name not in NO_KERNEL and self._runs_here(args, kwargs, out):
            self.started.append(Kernel(name, self._bytes(name, args, kwargs, out), _flops(function, args, kwargs, out)))
        return out

    def _runs_here(self, args: Any, kwargs: Any, out: Any) -> bool:
        """Whether the result is on the device, and no copy from another one."""
        return bool(self._tensors(out)) and all(x.device.type == self.device_type for x in _tensors(args, kwargs)[:1])

    def _bytes(self, name: str, args: Any, kwargs: Any, out: Any) -> int:
        given, made = self._tensors(args, kwargs), self._tensors(out)
        if name in LOOK_UP or name in ADD_ROWS:
            rows = made if name in LOOK_UP else given[-1:]
            return 2 * sum(map(size, rows)) + sum(size(x) for x in given[1:] if not x.is_floating_point())
        read = given[1:] if name in OVERWRITE else given
        return sum(map(size, read)) + sum(map(size, made))

    def _tensors(self, *values: Any) -> list[torch.Tensor]:
        return [x for x in _tensors(*values) if x.device.type == self.device_type]


def _tensors(*values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def size(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's distinct elements: expanded dimensions count once."""
    lengths = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not n)
    return math.prod(lengths) * tensor.element_size()


def _flops(function: Any, args: Any, kwargs: Any, out: Any) -> int:
    formula = flop_registry.get(function._overloadpacket)
    return int(formula(*args, **kwargs, out_val=out)) if formula else 0
