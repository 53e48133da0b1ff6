"""Kernels counted without a device: their number, bytes and FLOPs, against hand computation."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.trainer.cluster.planning.kernels import Kernel, Kernels, attention_as_on_cuda


def of(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=grad)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda: of(8, 16) @ of(16, 4), Kernel("mm", 2 * (8 * 16 + 16 * 4 + 8 * 4), 2 * 8 * 16 * 4)),
        (lambda: of(8, 16) + of(16), Kernel("add", 2 * (2 * 8 * 16 + 16), 0)),
        (lambda: of(8, 16).add_(of(8, 16)), Kernel("add_", 2 * 3 * 8 * 16, 0)),
        (lambda: of(8, 1).expand(8, 16) * 2, Kernel("mul", 2 * (8 + 8 * 16), 0)),  # the expanded column is read once
        (lambda: of(8, 16).copy_(of(8, 16)), Kernel("copy_", 2 * 2 * 8 * 16, 0)),
        (lambda: of(8, 16).zero_(), Kernel("zero_", 2 * 8 * 16, 0)),
        # the rows that are chosen, not the table
        (lambda: F.embedding(of(5, dtype=torch.int64), of(1000, 16)), Kernel("embedding", 2 * 2 * 5 * 16 + 8 * 5, 0)),
    ],
)
def test_a_kernel_reads_its_inputs_and_writes_its_outputs(compute: Callable[[], Tensor], expected: Kernel) -> None:
    with Kernels() as kernels:
        compute()
    assert kernels.started == [expected]


def test_a_kernel_without_result_writes_arguments() -> None:
    weight = of(8, 16, dtype=torch.float32, grad=True)
    optimizer = torch.optim.AdamW([weight], fused=True)
    weight.grad = torch.zeros_like(weight)
    optimizer.state[weight] = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
    optimizer.state[weight]["step"] = torch.zeros((), device="meta")
    with Kernels() as kernels:
        optimizer.step()
    fused = kernels.started[-1]
    assert fused.name == "_fused_adamw_"
    # it reads weight, gradient and both moments, and writes all but the gradient, which its schema lets it write
    assert fused.bytes == pytest.approx(4 * 8 * 16 * 8, abs=16)


def test_views_and_new_memory_start_no_kernel() -> None:
    with Kernels() as kernels:
        of(8, 16).t().reshape(4, 4, 8)[1:].detach()
    assert kernels.started == []


@pytest.mark.parametrize(("masked", "kind"), [(False, "flash"), (True, "efficient")])
def test_attention_is_one_kernel_each_way(masked: bool, kind: str) -> None:
    query, key, value = (of(2, 3, 64, 16, grad=True) for _ in range(3))
    mask = of(2, 1, 1, 64, dtype=torch.bool) if masked else None
    with attention_as_on_cuda(), Kernels() as kernels:
        F.scaled_dot_product_attention(query, key, value, attn_mask=mask).sum().backward()
    forward, backward = (one for one in kernels.started if "attention" in one.name)
    product = 2 * 2 * 3 * 64 * 64 * 16
    assert forward.name == f"_scaled_dot_product_{kind}_attention"
    assert (forward.flops, backward.flops) == (2 * product, 5 * product)  # the backward pass computes the scores again


def test_on_a_cpu_attention_is_torch_s_own() -> None:
    own = [torch.randn(1, 2, 8, 4) for _ in range(3)]
    expected = F.scaled_dot_product_attention(*own)
    with attention_as_on_cuda():
        assert torch.equal(F.scaled_dot_product_attention(*own), expected)
