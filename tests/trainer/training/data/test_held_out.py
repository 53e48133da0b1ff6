"""Held-out data: every example once, for any number of ranks, with the same random choices every time."""

from typing import Any

import pytest

from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.errors import SharedError
from tests.trainer.training.data.integers import UNEVEN, Echo, Numbers


def held_out(per_chunk: int = 3) -> HeldOut:
    return HeldOut(Numbers(UNEVEN, per_chunk), Echo(), seed=1, window=2, micro_batch=4)


def rows(batches: Any) -> list[tuple[int, int]]:
    return [tuple(row) for batch in batches for row in batch.arrays["items"].tolist()]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 50])
def test_any_number_of_ranks_reads_every_example_once_with_the_same_randomness(world_size: int) -> None:
    alone = rows(held_out().micro_batches(0, 1))
    shared = [row for rank in range(world_size) for row in rows(held_out().micro_batches(rank, world_size))]
    assert sorted(shared) == sorted(alone)
    assert len({item for item, _ in alone}) == len(alone) == sum(UNEVEN) * 3


def test_data_without_an_example_is_an_error_of_all_ranks() -> None:
    with pytest.raises(SharedError, match="validation: the held-out data give no example"):
        held_out(per_chunk=0).first()
