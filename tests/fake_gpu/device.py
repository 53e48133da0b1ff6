"""A fake GPU for a machine without one: tensors that have a shape and a device, and no memory.

A device of torch's PrivateUse1 backend under FakeTensorMode: a model of any size runs forward and backward in a second,
with the autograd engine of an accelerator, and a tensor made on the CPU that meets one of the GPU raises an error.

`install` patches torch and transformers for good, so it is called only in processes of their own: `tests.fake_gpu`.
"""

from __future__ import annotations

import torch
import transformers.masking_utils
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from deepsiam.trainer.cluster.planning.kernels import attend_as_on_cuda

GPU = "fakegpu"
OLDEST = (2, 13)  # the first torch with a backend that is written in Python alone


def install() -> None:
    """Make the device known to torch."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(GPU)
    getattr(torch, GPU).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    FakeTensorMode.may_turn_const = lambda self, tensor: False  # else tensors of one number are really computed
    FakeTensorMode.avoid_device_init = property(lambda self: True)
    transformers.masking_utils.is_tracing = lambda *_: False  # transformers takes a fake tensor for tracing
    Tensor.record_stream = lambda *_: None
    attend_as_on_cuda()


def to_gpu(model: nn.Module, dtype: torch.dtype) -> None:
    """Move parameters and buffers, as Module.to does; plain attributes stay where they are."""
    moved: dict[int, nn.Parameter] = {}  # tied parameters stay tied
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None:
                if id(p) not in moved:
                    moved[id(p)] = nn.Parameter(torch.empty(p.shape, dtype=dtype, device=GPU), p.requires_grad)
                module._parameters[name] = moved[id(p)]
        for name, b in module._buffers.items():
            if b is not None:
                kind = dtype if b.is_floating_point() else b.dtype
                module._buffers[name] = torch.empty(b.shape, dtype=kind, device=GPU)
