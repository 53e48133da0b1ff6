"""The learning rate."""

import math

import pytest

from trainer.training.recipe.schedule import learning_rate


def test_linear_warm_up_and_decay() -> None:
    rates = [learning_rate(step, peak=1.0, warmup_steps=4, steps=12) for step in range(12)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
    assert learning_rate(0, peak=1.0, warmup_steps=0, steps=2) == 1.0


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_linear_warm_up_and_inverse_square_root_decay(warmup_steps: int) -> None:
    """Vaswani et al., 2017, section 5.3: min(1 / sqrt(n), n / w^1.5) at the n-th step, scaled to the peak."""
    rates = [
        learning_rate(step, peak=3.0, warmup_steps=warmup_steps, steps=12, schedule="inverse_sqrt")
        for step in range(100)  # the decay does not depend on `steps`
    ]
    w = max(1, warmup_steps)
    assert rates == pytest.approx([3 * math.sqrt(w) * min(n**-0.5, n * w**-1.5) for n in range(1, 101)])
    assert max(rates) == rates[w - 1] == 3.0


def test_linear_warm_up_and_no_decay() -> None:
    rates = [learning_rate(step, peak=2.0, warmup_steps=4, steps=6, schedule="constant") for step in range(6)]
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0, 2.0])
