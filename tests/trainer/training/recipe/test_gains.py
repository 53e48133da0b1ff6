"""Plateaus of the validation loss, and the best of the probes."""

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau

from deepsiam.trainer.training.recipe.gains import Best, Plateau


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


def test_the_rate_falls_for_good() -> None:
    assert ours([3.0, 2.0, 2.0, 2.5, 1.0, 0.99995, 0.5], 0.4, 0) == pytest.approx([1, 1, 0.4, 0.16, 0.16, 0.064, 0.064])
    assert ours([3.0, 3.0, 3.0, 3.0, 3.0], 0.5, 1) == [1, 1, 0.5, 0.5, 0.25]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_the_best_is_the_first_highest_and_the_count_is_of_those_since(values: list[int]) -> None:
    best = Best()
    for step, value in enumerate(values):
        best = best.after(step, value / 5, "ndcg@10 of dev")
    at = values.index(max(values))
    assert (best.value, best.step, best.bad) == (max(values) / 5, at, len(values) - 1 - at)


def test_a_repeated_probe_is_not_counted_again() -> None:
    once = Best().after(0, 0.5, "a").after(10, 0.4, "a")
    assert once.after(10, 0.4, "a") == once
    assert once.after(10, 0.6, "a") == once
    assert once.bad == 1


def test_a_probe_of_the_last_step_alone_is_none_without_a_gain() -> None:
    once = Best().after(0, 0.5, "a").after(5, 0.4, "a", is_extra=True)
    assert (once.value, once.bad, once.last) == (0.5, 0, 5)
    assert once.after(10, 0.4, "a").bad == 1
    better = once.after(15, 0.6, "a", is_extra=True)
    assert (better.value, better.step, better.bad) == (0.6, 15, 0)


def test_another_measure_starts_anew() -> None:
    best = Best().after(0, 0.5, "ndcg@10 of dev").after(10, 0.4, "ndcg@10 of dev").after(20, 0.1, "mrr@10 of dev")
    assert (best.value, best.step, best.bad) == (0.1, 20, 0)
