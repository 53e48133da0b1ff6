"""What torch.compile makes of a layer's kernels: a bound, counted from the kernels that the layer starts without it.

Inductor makes one kernel of the element-wise operations and row reductions between two matrix products: it reads what
came from outside once, and writes only what is used later. A sum over all rows stays a kernel of its own, as does the
gradient of a LayerNorm's weights. What would be computed again in the backward pass, and so not be stored, is counted
as stored.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from deepsiam.trainer.cluster.planning.kernels import ADD_ROWS, LOOK_UP, Kernel, Kernels, size

OVER_ROWS = {"sum"}
BACKWARD_OF_NORM = "native_layer_norm_backward"
ALONE = {*LOOK_UP, *ADD_ROWS, *OVER_ROWS}


@dataclass(frozen=True)
class Started:
    """A kernel, and the memory that it touches, by storage: bytes."""

    kernel: Kernel
    span: int  # a compiled layer's pass, forward or backward; 0: in none
    read: dict[int, int]
    written: dict[int, int]

    @property
    def fuses(self) -> bool:
        """Whether torch.compile may join it with its neighbours."""
        product = self.kernel.flops or "attention" in self.kernel.name
        return bool(self.span) and not product and self.kernel.name not in ALONE


class KernelsOfLayers(Kernels):
    """Lists kernels together with the layers' passes that they are in, and with the memory that they touch."""

    def __init__(self, device_type: str, layers: Iterable[nn.Module]) -> None:
        super().__init__(device_type)
        self.layers = list(layers)
        self.all: list[Started] = []
        self.span = self.spans = 0
        self.storages: dict[int, Any] = {}  # kept, so that no number is given twice

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Follow the layers' passes within a `with` block."""

        def enter(*_: object) -> None:
            self.spans += 1
            self.span = self.spans

        def leave(*_: object) -> None:
            self.span = 0

        handles = []
        for layer in self.layers:
            handles += [layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave)]
            handles += [layer.register_full_backward_pre_hook(enter), layer.register_full_backward_hook(leave)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def note(self, kernel: Kernel, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        """Record what a kernel reads and writes."""
        super().note(kernel, given, made)
        span = 0 if _of_deepspeed() else self.span
        self.all.append(Started(kernel, span, self._memory(given), self._memory(made)))

    def _memory(self, tensors: Sequence[torch.Tensor]) -> dict[int, int]:
        found: dict[int, int] = defaultdict(int)
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self.storages[storage._cdata] = storage
            found[storage._cdata] = max(found[storage._cdata], size(tensor))
        return found


def fused(started: Sequence[Started]) -> list[Kernel]:
    """Return the kernels that are left when those of each compiled pass are joined between two products."""
    uses: dict[int, list[int]] = defaultdict(list)
    passes: dict[int, list[int]] = defaultdict(list)
    for i, one in enumerate(started):
        passes[one.span].append(i)
        for memory in one.read:
            uses[memory].append(i)
    kernels = [started[i].kernel for i in passes.pop(0, [])]
    for of_pass in passes.values():
        run: list[int] = []
        for i in of_pass:
            if started[i].fuses:
                run.append(i)
                continue
            kernels.append(started[i].kernel)
            if started[i].kernel.name not in OVER_ROWS:  # a sum may wait for the run's end
                kernels += _joined(started, run, uses)
                run = []
        kernels += _joined(started, run, uses)
    return kernels


def _joined(started: Sequence[Started], run: Sequence[int], uses: Mapping[int, Sequence[int]]) -> list[Kernel]:
    """Join the kernels of a run, given their places; the gradients of LayerNorms' weights are kernels of their own."""
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    of_weights = []
    for one in map(started.__getitem__, run):
        for memory, number in one.read.items():
            if memory not in written:
                read[memory] = max(number, read.get(memory, 0))
        written.update(one.written)
        if one.kernel.name == BACKWARD_OF_NORM:
            of_weights.append(Kernel(f"{BACKWARD_OF_NORM}, of weights", sum(one.read.values()), 0))
    inside = set(run)
    kept = [number for memory, number in written.items() if any(i not in inside and i > run[0] for i in uses[memory])]
    return [Kernel("fused", sum(read.values()) + sum(kept), 0), *of_weights] if run else []


def _of_deepspeed() -> bool:
    """Whether DeepSpeed itself starts a kernel, in a hook that autograd calls: the compiled layer has no part in it."""
    frame: Any = sys._getframe(2)
    while "/torch/" in frame.f_code.co_filename:
        if frame.f_code.co_filename.endswith("/autograd/graph.py"):  # autograd started it, and DeepSpeed only autograd
            return False
        frame = frame.f_back
    return "/deepspeed/" in frame.f_code.co_filename
