"""The kernels of a model as they are counted, and their time on a device, against hand computation."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.trainer.cluster.planning.compute import Work
from deepsiam.trainer.cluster.planning.kernels import Kernel, Kernels, attention_as_on_cuda
from deepsiam.trainer.cluster.planning.roofline import ATTENTION, BANDWIDTH, GRADIENT_BYTES, STATE_BYTES, Roofline
from deepsiam.trainer.training.engine.hardware import DEVICES


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


H100 = DEVICES["h100"]
ROOFLINE = Roofline(H100, products=0.5, launch=1e-6, start=2e-6)
PRODUCT = Kernel("mm", 1, 10**12)
SUM = Kernel("add", 10**9, 0)


def test_a_kernel_takes_the_longer_of_bytes_and_products_and_its_launch() -> None:
    assert ROOFLINE.seconds(PRODUCT) == pytest.approx(1e12 / (0.5 * H100.peak) + 1e-6)
    assert ROOFLINE.seconds(SUM) == pytest.approx(1e9 / (BANDWIDTH * H100.memory_bandwidth) + 1e-6)
    assert ROOFLINE.seconds(replace(SUM, flops=10)) == ROOFLINE.seconds(SUM)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("_scaled_dot_product_efficient_attention_backward", ATTENTION["efficient"]),
        ("_flash_attention_forward", ATTENTION["flash"]),
    ],
)
def test_attention_attains_less_than_products(name: str, share: float) -> None:
    assert share < 0.5
    attention = replace(PRODUCT, name=name)
    assert ROOFLINE.seconds(attention) == pytest.approx(1e12 / (share * H100.peak) + 1e-6)


def test_kernels_run_one_after_another_unless_python_is_slower() -> None:
    assert ROOFLINE.total({PRODUCT: 2, SUM: 1}) == 2 * ROOFLINE.seconds(PRODUCT) + ROOFLINE.seconds(SUM)
    assert ROOFLINE.total([Kernel("add", 0, 0)] * 7) == pytest.approx(7 * 2e-6)


def test_a_micro_batch_of_twice_the_examples_has_twice_the_work_and_as_many_kernels() -> None:
    work = Work(1000, (1000,), {PRODUCT: 3}, 4, 100.0, 1.0, 1.0)
    assert work.flops == 3e12 / 4
    once, twice = ROOFLINE.micro_batch(work, 4), ROOFLINE.micro_batch(work, 8)
    assert once == ROOFLINE.total({PRODUCT: 3})
    assert twice - 3e-6 == pytest.approx(2 * (once - 3e-6))


def test_deepspeed_moves_all_gradients_and_a_part_of_the_states() -> None:
    expected = (1000 * GRADIENT_BYTES + 250 * STATE_BYTES) / (BANDWIDTH * H100.memory_bandwidth)
    assert ROOFLINE.optimizer(1000, 4) == pytest.approx(expected)
