"""The learning rate."""

import math
from typing import Any, get_args

import numpy as np
import pytest

from deepsiam.trainer.training.recipe.schedule import Schedule, learning_rate
from deepsiam.trainer.training.recipe.schema import OptimizerConfig


@pytest.mark.parametrize(
    ("keys", "rates"),
    [
        (
            {"peak": 1.0, "warmup_steps": 4, "steps": 12},
            [0.25, 0.5, 0.75, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125],
        ),
        ({"peak": 1.0, "warmup_steps": 0, "steps": 2}, [1.0, 0.5]),
        ({"peak": 2.0, "warmup_steps": 4, "steps": 6, "schedule": "constant"}, [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]),
        (
            {"peak": 2.0, "warmup_steps": 2, "steps": 9, "schedule": "wsd", "decay_steps": 4},
            [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0],
        ),
        (  # a longer run has the same rates until the shorter one decays
            {"peak": 2.0, "warmup_steps": 2, "steps": 30, "schedule": "wsd", "decay_steps": 4},
            [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
        ),
    ],
)
def test_warm_up_and_decay_are_linear(keys: dict[str, Any], rates: list[float]) -> None:
    assert [learning_rate(step, **keys) for step in range(len(rates))] == pytest.approx(rates)


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_inverse_square_root_and_cosine_decay(warmup_steps: int) -> None:
    """Vaswani et al., 2017, section 5.3: min(1 / sqrt(n), n / w^1.5) at the n-th step, scaled to the peak."""
    keys: dict[str, Any] = {"peak": 3.0, "warmup_steps": warmup_steps, "steps": 12}
    # the decay does not depend on `steps`
    rates = [learning_rate(step, schedule="inverse_sqrt", **keys) for step in range(100)]
    w = max(1, warmup_steps)
    assert rates == pytest.approx([3 * math.sqrt(w) * min(n**-0.5, n * w**-1.5) for n in range(1, 101)])
    assert max(rates) == rates[w - 1] == 3.0
    rates = [learning_rate(step, schedule="cosine", **keys) for step in range(13)]
    assert rates[:warmup_steps] == pytest.approx([3 * n / warmup_steps for n in range(1, warmup_steps + 1)])
    decayed = np.linspace(0, math.pi, 13 - warmup_steps)
    assert rates[warmup_steps:] == pytest.approx(1.5 + 1.5 * np.cos(decayed), abs=1e-12)


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_a_recipe_passes_on_all_that_its_schedule_needs(schedule: Schedule) -> None:
    decay_steps = 3 if schedule == "wsd" else 0
    keys = OptimizerConfig(lr=1e-3, warmup_steps=2, schedule=schedule, decay_steps=decay_steps)
    for step in range(10):
        expected = learning_rate(step, peak=1e-3, warmup_steps=2, steps=10, schedule=schedule, decay_steps=decay_steps)
        assert keys.rate(step, 10) == expected
