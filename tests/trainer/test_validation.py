"""Held-out data: every example once, whoever reads it, masked the same every time."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from models.task import MicroBatch
from tests.trainer.test_lanes import UNEVEN, Echo, Numbers
from trainer.faults import SharedError
from trainer.validation import Validation


def validation(chunks: list[int] | None = None, per_chunk: int = 3) -> Validation:
    return Validation(Numbers(chunks or UNEVEN, per_chunk), Echo(), seed=1, window=2, micro_batch=4, every=10)


def rows(batches: Any) -> list[tuple[int, int]]:
    return [tuple(row) for batch in batches for row in batch.arrays["items"].tolist()]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 50])
def test_every_example_is_read_once_with_the_same_randomness_by_any_number_of_ranks(world_size: int) -> None:
    alone = rows(validation().micro_batches(0, 1))
    shared = [row for rank in range(world_size) for row in rows(validation().micro_batches(rank, world_size))]
    assert sorted(shared) == sorted(alone)
    assert len({item for item, _ in alone}) == len(alone) == sum(UNEVEN) * 3


class Rank:
    """A rank whose loss is a sum of its micro-batch; the others' parts are what they would give it."""

    weights = {"loss": 1.0}

    def __init__(self, rank: int, size: int):
        from trainer.engine import World

        self.world = World(rank, size, rank, size)
        self.evaluated = 0

    def evaluate(self, batch: MicroBatch) -> torch.Tensor:
        self.evaluated += 1
        return torch.tensor([float(np.sin(batch.arrays["items"]).sum())])

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def gather(self, value: Any) -> list[Any]:
        return [value]


def test_the_loss_is_the_mean_over_every_target_and_each_batch_is_a_sign_of_life() -> None:
    beats: list[int] = []
    rank = Rank(0, 1)
    losses = validation().losses(rank, lambda: beats.append(1))  # type: ignore[arg-type]
    batches = list(validation().micro_batches(0, 1))
    expected = math.fsum(float(np.float32(np.sin(batch.arrays["items"]).sum())) for batch in batches)
    assert losses == {"loss": pytest.approx(expected / (sum(UNEVEN) * 3), rel=1e-12)}
    assert len(beats) == rank.evaluated == len(batches)


def test_nothing_to_validate_on_is_said_by_rank_0_for_all() -> None:
    with pytest.raises(SharedError, match="validation: the held-out data hold nothing"):
        validation(per_chunk=0).losses(Rank(0, 1), lambda: None)  # type: ignore[arg-type]
