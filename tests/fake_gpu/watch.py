"""Count what makes the host wait for the fake GPU, and invent the data that it waits for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.fake_gpu.device import GPU
from tests.toy import ROOT

DATA_DEPENDENT = ("nonzero", "masked_select", "_unique2")  # the size of their result depends on data
COPIES = ("_to_copy", "copy_", "to")
Wait = str  # what waits, and the line of this project, or of DeepSpeed, that asked


class Watch(TorchDispatchMode):
    """Counts waits and copies within a `with` block.

    Attributes:
        waits: what made the host wait, by cause and line: .item(), .tolist(), bool(tensor), boolean masks, nonzero,
            copies to the host, blocking copies to the GPU.
        copies: copies to the GPU that the host does not wait for.
        pageable: those of them from memory that is not pinned: CUDA copies it to a pinned buffer first, on the host.
        answers: what `tolist` returns in turn in the functions that are named; falling numbers elsewhere.
    """

    current: ClassVar[Watch]

    def __init__(self, answers: Mapping[str, Sequence[list[int]]] = MappingProxyType({})) -> None:
        super().__init__()
        self.waits: Counter[Wait] = Counter()
        self.copies = self.pageable = 0
        self.answers = {function: iter(given) for function, given in answers.items()}
        Watch.current = self

    def wait(self, what: str) -> None:
        """Record a wait of the host."""
        self.waits[f"{what} at {_caller()}"] += 1

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = function._schema.name.partition("::")[2]
        # in inference mode torch takes nothing apart
        if torch.is_inference_mode_enabled() and name not in COPIES and _is_composite(function):
            with self:
                return function.decompose(*args, **kwargs)
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        on_gpu = any(x.device.type == GPU for x in inputs)
        if name == "_local_scalar_dense":
            if on_gpu:
                self.wait("item")
            # DeepSpeed asks whether gradients overflow; others ask whether all is well
            well = not (on_gpu and any("/deepspeed/" in frame.f_code.co_filename for frame in _frames()))
            return well if inputs[0].dtype == torch.bool else int(well)
        if on_gpu and name in DATA_DEPENDENT:
            self.wait(name)
            return torch.empty(inputs[0].numel(), inputs[0].ndim, dtype=torch.int64, device=GPU)
        if on_gpu and name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1]):
            self.wait("boolean mask")
            (mask,) = args[1]
            return args[0].new_empty(mask.numel(), *args[0].shape[mask.ndim :])
        pinned = kwargs.pop("pin_memory", False)
        out = function(*args, **kwargs)
        if pinned:
            _pin(out)
        if name in COPIES and out.device != inputs[-1].device:
            self._copied(inputs[-1], kwargs.get("non_blocking") or True in args[2:])
        return out

    def _copied(self, source: Tensor, in_background: bool) -> None:
        if source.device.type == GPU:
            if not in_background:
                self.wait("copy to the host")
        elif in_background:
            self.copies += 1
            self.pageable += not is_pinned(source)
        else:
            self.wait("blocking copy to the GPU")


def _is_composite(function: Any) -> bool:
    return function.namespace == "aten" and function._can_decompose()


PINNED: dict[int, Tensor] = {}


def _pin(tensor: Tensor, *_: object) -> Tensor:
    PINNED[tensor.untyped_storage()._cdata] = tensor
    return tensor


def _pinned_copy(tensor: Tensor, *_: object) -> Tensor:
    if tensor.device.type == GPU:
        raise RuntimeError("cannot pin a tensor of the GPU: only dense CPU tensors can be pinned")  # as CUDA says
    return _pin(tensor.clone())


def is_pinned(tensor: Tensor, *_: object) -> bool:
    """Whether a tensor's memory is pinned."""
    return tensor.untyped_storage()._cdata in PINNED


def _tolist(tensor: Tensor) -> Any:
    """Wait once, not once for each number. Falling numbers: texts of these lengths make several rectangles."""
    watch = Watch.current
    if tensor.device.type == GPU:
        watch.wait("tolist")
    function = sys._getframe(1).f_code.co_name
    if function in watch.answers:
        return next(watch.answers[function])
    return [8 * (tensor.shape[0] - i) for i in range(tensor.shape[0])] if tensor.ndim else 1


def _numpy(tensor: Tensor) -> np.ndarray:
    return np.ones(tensor.shape, str(tensor.dtype).removeprefix("torch."))


def install() -> None:
    """Let fake tensors be read and pinned; in a process of its own."""
    FakeTensor.tolist = _tolist  # type: ignore[method-assign]
    FakeTensor.numpy = _numpy  # type: ignore[method-assign]
    Tensor.pin_memory = _pinned_copy  # type: ignore[method-assign]
    Tensor.is_pinned = is_pinned  # type: ignore[method-assign]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(2)
    while frame:
        yield frame
        frame = frame.f_back


def _caller() -> str:
    """Return the innermost line of this project or of DeepSpeed, but this file."""
    for frame in _frames():
        path = frame.f_code.co_filename
        inside = path.startswith(f"{ROOT}/") and "/site-packages/" not in path and path != __file__
        if inside or "/deepspeed/" in path:
            return f"{'/'.join(path.rsplit('/', 2)[1:])}:{frame.f_lineno}"
    return "unknown"
