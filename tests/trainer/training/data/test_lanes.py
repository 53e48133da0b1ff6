"""Lanes and held-out data: every item once, for any number of ranks; skipped shards; what is refused."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common.errors import CacheError, InputError
from deepsiam.trainer.training.data.lanes import START, Lanes, Position
from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.errors import SharedError
from tests.trainer.training.data.integers import EVERYTHING, UNEVEN, Echo, Numbers, items, lanes_of, order_of


def epochs(lanes: Lanes, count: int) -> Counter[tuple[int, int]]:
    """Count how often all lanes of a source read each (epoch, item), in micro-batches of one."""
    seen: Counter[tuple[int, int]] = Counter()
    for lane in range(lanes.lanes):
        for step in lanes.micro_batches(lane, START):
            if step.after.epoch == count:
                break
            seen[(step.after.epoch, int(step.micro_batch.arrays["items"][0][0]))] += 1
    return seen


def test_a_lane_reads_every_item_of_its_shards_once_per_epoch() -> None:
    seen = epochs(lanes_of(UNEVEN, micro_batch=1), 3)
    for epoch in range(3):
        assert {item for e, item in seen if e == epoch} == EVERYTHING
    assert set(seen.values()) == {1}


def test_epochs_differ_in_order_and_in_the_deal() -> None:
    lanes = lanes_of(UNEVEN)
    assert lanes.deal(0).tolist() != lanes.deal(1).tolist()
    assert items_of_epoch(lanes, 0) != items_of_epoch(lanes, 1)


def items_of_epoch(lanes: Lanes, epoch: int) -> list[int]:
    steps = lanes.micro_batches(0, Position(epoch, 0, 0))
    return [int(x) for step in islice(steps, 2) for x, _ in step.micro_batch.arrays["items"]]


def test_a_skipped_shard_stays_skipped_after_its_repair() -> None:
    broken = lanes_of(UNEVEN, bad=[(3, 2)], skip_bad=True, micro_batch=1)
    steps = [step for lane in range(4) for step in islice(broken.micro_batches(lane, START), 40)]
    skips = {skip for step in steps for skip in step.skips}
    assert {(skip.shard, skip.chunk, skip.reason) for skip in skips} == {(3, 2, "shard 3 is damaged")}
    repaired = lanes_of(UNEVEN, micro_batch=1)
    repaired.skip(skips)
    assert items(steps) == items(step for lane in range(4) for step in islice(repaired.micro_batches(lane, START), 40))


def test_a_skipped_shard_loses_its_remaining_chunks_and_nothing_else() -> None:
    seen = epochs(lanes_of(UNEVEN, bad=[(3, 2)], skip_bad=True, micro_batch=1), 1)
    lost = {3000 + chunk * 100 + i for chunk in (2, 3, 4) for i in range(3)}
    assert {item for _, item in seen} == EVERYTHING - lost


def test_a_cache_without_room_is_no_bad_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = lanes_of(UNEVEN, skip_bad=True, micro_batch=1)
    monkeypatch.setattr(lanes.source, "read", Mock(side_effect=CacheError("the disk of the cache is full")))
    with pytest.raises(CacheError, match="is full"):
        epochs(lanes, 1)


def test_a_bad_shard_ends_the_lane_unless_it_may_be_skipped() -> None:
    with pytest.raises(InputError, match="shard 3 is damaged"):
        epochs(lanes_of(UNEVEN, bad=[(3, 2)], micro_batch=1), 1)


def test_every_example_is_traced_to_its_documents() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of(UNEVEN, number=1), weights=(1, 1))
    for batch in islice(order.stream(order.start(), 0, 1), 60):
        assert order.origins(batch) == [[str(item)] for item, _ in items([batch])]


def test_fewer_shards_than_lanes_are_refused() -> None:
    with pytest.raises(InputError, match="data.lanes: 4 lanes need at least 4 shards .*, the data has 3: "):
        lanes_of([1, 1, 1])


def test_a_lane_without_text_is_refused_instead_of_read_for_ever() -> None:
    empty = Lanes(Numbers([1, 1], per_chunk=0), Echo(), seed=1, lanes=2, window=1, micro_batch=1)
    with pytest.raises(InputError, match="lane 1, epochs 0 to 10"):
        next(empty.micro_batches(1, START))


class Choosy(Echo):
    def examples(self, documents: Sequence[Any]) -> list[Any]:
        raise ValueError("needs sentence boundaries")


def test_data_that_the_method_cannot_use_is_refused_in_one_line() -> None:
    lanes = Lanes(Numbers([1] * 4), Choosy(), seed=1, lanes=4, window=1, micro_batch=1)
    with pytest.raises(InputError, match="^method: needs sentence boundaries$"):
        next(lanes.micro_batches(0, START))


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
