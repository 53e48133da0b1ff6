"""The learning rate."""

import pytest

from trainer.schedule import learning_rate


def test_linear_warm_up_and_decay() -> None:
    rates = [learning_rate(step, peak=1.0, warmup_steps=4, steps=12) for step in range(12)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
    assert learning_rate(0, peak=1.0, warmup_steps=0, steps=2) == 1.0
