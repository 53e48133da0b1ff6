"""The time of kernels on a device, against hand computation."""

from dataclasses import replace

import pytest

from deepsiam.trainer.cluster.planning.compute import Work
from deepsiam.trainer.cluster.planning.kernels import Kernel
from deepsiam.trainer.cluster.planning.roofline import ATTENTION, BANDWIDTH, GRADIENT_BYTES, STATE_BYTES, Roofline
from deepsiam.trainer.training.engine.hardware import DEVICES

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
