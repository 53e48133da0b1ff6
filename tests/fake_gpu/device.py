"""A fake GPU for a machine without one: tensors that have a shape and a device, and no memory.

A device of torch's PrivateUse1 backend under FakeTensorMode: a model of any size runs forward and backward in a second,
with the autograd engine of an accelerator, and a tensor made on the CPU that meets one of the GPU raises an error.

`install` patches torch and transformers for good, so it is called only in processes of their own: `tests.fake_gpu`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
import transformers.masking_utils
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from models import encode
from models.attention import Kernel, flash, suits_flash

GPU = "fakegpu"
OLDEST = (2, 13)  # the first torch with a backend that is written in Python alone

real_attention = F.scaled_dot_product_attention


def install() -> None:
    """Make the device known to torch."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(GPU)
    getattr(torch, GPU).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    FakeTensorMode.may_turn_const = lambda self, tensor: False  # else tensors of one number are really computed
    FakeTensorMode.avoid_device_init = property(lambda self: True)
    transformers.masking_utils.is_tracing = lambda *_: False  # transformers takes a fake tensor for tracing
    Tensor.record_stream = lambda *_: None
    F.scaled_dot_product_attention = attention
    encode.kernel_for = kernel_for


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attend by the kernel that torch chooses on CUDA in half precision: flash without a mask, else memory-efficient.

    Without this, torch would choose its plain products, as it finds no kernels for the fake device.
    """
    if query.device.type != GPU:
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return real_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
    if enable_gqa:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    aten = torch.ops.aten
    if attn_mask is None:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -math.inf)
    attn_mask = F.pad(attn_mask, (0, -attn_mask.shape[-1] % 8))[..., : key.shape[2]]
    attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    grad = torch.is_grad_enabled()
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, grad, dropout_p, is_causal, scale=scale
    )[0]


def kernel_for(device: torch.device, dtype: torch.dtype, head_size: int) -> Kernel | None:
    """Choose the kernel for texts without padding as on an H100."""
    return flash if device.type == GPU and suits_flash(dtype, head_size) else None


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
