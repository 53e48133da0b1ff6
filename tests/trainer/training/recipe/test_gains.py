"""The learning rate, plateaus of the validation loss, and the best of the probes."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau

from deepsiam.trainer.training.recipe.gains import Best, Plateau
from deepsiam.trainer.training.recipe.schema import OptimizerConfig


def theirs(losses: list[float], factor: float, patience: int) -> list[float]:
    """The rates that PyTorch's class sets after each loss, from a rate of 1 and without its minimum change (`eps`)."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, "min", factor=factor, patience=patience, threshold=1e-4, eps=0.0)
    rates = []
    for loss in losses:
        scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def ours(losses: list[float], factor: float, patience: int) -> list[float]:
    state, rates = Plateau(), []
    for loss in losses:
        state = state.after(loss, factor=factor, patience=patience)
        state = Plateau(**json.loads(json.dumps(dataclasses.asdict(state))))  # saved and loaded as in a checkpoint
        rates.append(state.scale)
    return rates


NEAR = st.integers(-20, 20).map(lambda n: 2.0 * (1 + n * 2e-5))  # on both sides of the threshold
LOSSES = st.lists(NEAR | st.floats(0.0, 10.0) | st.just(float("nan")), max_size=30)


@given(LOSSES, st.sampled_from([0.4, 0.5, 0.9]), st.integers(0, 3))
def test_it_is_that_of_pytorch(losses: list[float], factor: float, patience: int) -> None:
    assert ours(losses, factor, patience) == theirs(losses, factor, patience)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_the_best_is_the_first_highest_and_the_count_is_of_those_since(values: list[int]) -> None:
    best = Best()
    for step, value in enumerate(values):
        best = best.after(step, value / 5, "ndcg@10 of dev")
    at = values.index(max(values))
    assert (best.value, best.step, best.bad) == (max(values) / 5, at, len(values) - 1 - at)


def test_which_probes_count_as_ones_without_a_gain() -> None:
    once = Best().after(0, 0.5, "a").after(10, 0.4, "a")
    assert once.bad == 1
    assert once.after(10, 0.4, "a") == once.after(10, 0.6, "a") == once  # repeated by a resumed run
    last = Best().after(0, 0.5, "a").after(5, 0.4, "a", is_extra=True)  # of the last step alone
    assert (last.value, last.bad, last.last) == (0.5, 0, 5)
    assert last.after(10, 0.4, "a").bad == 1
    better = last.after(15, 0.6, "a", is_extra=True)
    assert (better.value, better.step, better.bad) == (0.6, 15, 0)
    other = once.after(20, 0.1, "another measure")
    assert (other.value, other.step, other.bad) == (0.1, 20, 0)


def scheduled(count: int, steps: int, **keys: Any) -> list[float]:
    """The rates of the first steps of a run."""
    return [OptimizerConfig(**keys).rate(step, steps) for step in range(count)]


def test_warm_up_and_decay_are_linear() -> None:
    def rates(lr: float, warmup_steps: int, steps: int, count: int = 0, **keys: Any) -> Any:
        return pytest.approx(scheduled(count or steps, steps, lr=lr, warmup_steps=warmup_steps, **keys))

    assert rates(1.0, 4, 12) == [0.25, 0.5, 0.75, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert rates(1.0, 0, 2) == [1.0, 0.5]
    assert rates(2.0, 4, 6, schedule="constant") == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    wsd: dict[str, Any] = {"schedule": "wsd", "decay_steps": 4}
    assert rates(2.0, 2, 9, 10, **wsd) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0]
    # a longer run has the same rates until the shorter one decays
    assert rates(2.0, 2, 30, 7, **wsd) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_inverse_square_root_and_cosine_decay(warmup_steps: int) -> None:
    """Vaswani et al., 2017, section 5.3: min(1 / sqrt(n), n / w^1.5) at the n-th step, scaled to the peak."""
    keys: dict[str, Any] = {"lr": 3.0, "warmup_steps": warmup_steps, "steps": 12}
    # the decay does not depend on `steps`
    rates = scheduled(100, schedule="inverse_sqrt", **keys)
    w = max(1, warmup_steps)
    assert rates == pytest.approx([3 * math.sqrt(w) * min(n**-0.5, n * w**-1.5) for n in range(1, 101)])
    assert max(rates) == rates[w - 1] == 3.0
    rates = scheduled(13, schedule="cosine", **keys)
    assert rates[:warmup_steps] == pytest.approx([3 * n / warmup_steps for n in range(1, warmup_steps + 1)])
    decayed = np.linspace(0, math.pi, 13 - warmup_steps)
    assert rates[warmup_steps:] == pytest.approx(1.5 + 1.5 * np.cos(decayed), abs=1e-12)
