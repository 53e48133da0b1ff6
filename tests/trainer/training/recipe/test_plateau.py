"""Plateaus of the validation loss."""

import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau

from deepsiam.trainer.training.recipe.plateau import Plateau


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
