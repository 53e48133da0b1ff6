"""The order of data, the same on any cluster and after a resume; the sources of a mix, drawn by weight."""

import multiprocessing
from collections import Counter
from collections.abc import Collection
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deepsiam.data_prep.common.errors import CacheError, InputError
from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.trainer.training.data import shuffled as module
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import START, Lanes, Position
from deepsiam.trainer.training.data.loader import Loader, check_layout
from deepsiam.trainer.training.data.mixing import Mix
from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.data.order import LaneBatch, Order, dropout_seed
from deepsiam.trainer.training.data.shuffled import Shuffled, shuffled
from deepsiam.trainer.training.errors import SharedError
from tests.trainer.training.data.integers import EVERYTHING, UNEVEN, Echo, Numbers, items, lanes_of, order_of


@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_resuming_from_recorded_positions_equals_never_stopping(
    stop: int, lanes: int, window: int, micro_batch: int, bad: bool
) -> None:
    shape: dict[str, Any] = {"lanes": lanes, "window": window, "micro_batch": micro_batch, "skip_bad": True}

    def order(damaged: Collection[tuple[int, int]]) -> Order:
        sources = lanes_of(UNEVEN, bad=damaged, **shape), lanes_of(UNEVEN[::-1], number=1, **shape)
        return order_of(*sources, weights=(3, 1))

    damaged = [(3, 2), (6, 0)] if bad else []
    cursor = Cursor([[START] * lanes, [START] * lanes])
    undisturbed = list(islice(order(damaged).stream(cursor.positions, 0, 1), stop + 20))
    assert [batch.lane for batch in undisturbed] == [i % lanes for i in range(stop + 20)]
    for batch in undisturbed[:stop]:
        cursor.advance([batch], 1)
        cursor.skips.update(batch.skips)
    adapter = TypeAdapter(Cursor)
    cursor = adapter.validate_json(adapter.dump_json(cursor))
    resumed = order(damaged)
    resumed.skip(cursor.skips)
    batches = islice(resumed.stream(cursor.positions, cursor.micro_batches, 1), 20)
    assert items(batches) == items(undisturbed[stop:])


def draws(rng: np.random.Generator) -> list[float]:
    """Draw with every call that the batchers use; an odd number of 32-bit draws leaves half a word in the generator."""
    choice = rng.choice(500, 75, replace=False, shuffle=False)
    return [*choice, *rng.random(3), rng.integers(2**16, dtype=np.uint32), *rng.integers(30_000, size=5)]


def test_every_purpose_and_key_has_its_own_numbers_whatever_numpy_s_global_seed() -> None:
    keys = [("a", (1, 2)), ("b", (1, 2)), ("a", (2, 1)), ("a", ()), ("a", (1,))]
    seen = [draws(keyed_rng(purpose, *key)) for purpose, key in keys]
    assert all(first != second for number, first in enumerate(seen) for second in seen[:number])
    np.random.seed(3)
    of_a = [numbers for (purpose, _), numbers in zip(keys, seen, strict=True) if purpose == "a"]
    assert [draws(rng) for rng in keyed_rngs("a", [key for purpose, key in keys if purpose == "a"])] == of_a
    assert len({dropout_seed(1, i) for i in range(100)}) == 100


MIXED = [2] * 40 + UNEVEN


def first_of(order: Order, workers: int) -> LaneBatch:
    return next(Loader(order, 0, 1, workers).micro_batches(Cursor(order.start())))


@pytest.mark.parametrize(("world_size", "workers"), [(1, 4), (2, 2), (8, 0)])
def test_a_step_has_the_same_examples_on_any_cluster(world_size: int, workers: int) -> None:
    """Two sources with uneven shards, over two epochs of the larger one and many of the smaller one."""

    def steps(world_size: int, workers: int) -> list[Counter[tuple[int, int]]]:
        order = order_of(lanes_of(MIXED, lanes=32), lanes_of([1] * 32, lanes=32, number=1), weights=(0.6, 0.4))
        cursor = Cursor(order.start())
        ranks = [Loader(order, rank, world_size, workers).micro_batches(cursor) for rank in range(world_size)]
        return [Counter(items(batch for rank in ranks for batch in islice(rank, 8 // world_size))) for _ in range(40)]

    assert steps(world_size, workers) == steps(1, 0)


def test_the_ranks_cursors_together_resume_every_rank() -> None:
    order = order_of(lanes_of(UNEVEN))
    undisturbed = list(islice(order.stream(order.start(), 0, 1), 20))
    cursors = [Cursor(order.start()) for _ in range(2)]
    for step in range(4):
        for rank, own in enumerate(cursors):
            own.advance([undisturbed[2 * step + rank]], 2)
    cursor = Cursor.merged(cursors)
    ranks = [Loader(order, rank, 2, 0).micro_batches(cursor) for rank in range(2)]
    resumed = [batch for _ in range(6) for batch in (next(ranks[0]), next(ranks[1]))]
    assert items(resumed) == items(undisturbed[8:])


def test_workers_pass_on_errors_and_are_ahead_of_the_position() -> None:
    damaged = order_of(lanes_of(UNEVEN, bad=[(s, 0) for s in range(9)]))
    before = {*multiprocessing.active_children()}
    with pytest.raises(InputError, match=r"^shard \d is damaged$"):
        first_of(damaged, 1)
    for worker in {*multiprocessing.active_children()} - before:
        worker.kill()  # after an error it stays, and ignores SIGTERM: this process would wait for it at its exit
    order = order_of(lanes_of([2] * 16, lanes=8))
    ahead, alone = first_of(order, 2), first_of(order, 0)
    assert items([ahead]) == items([alone])
    assert ahead.end == alone.end


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ((8, 8, 3, 0), "data.lanes: 8 lanes cannot be shared by 3 ranks"),
        ((8, 3, 2, 0), "3 micro-batches a step cannot be shared by 2 ranks"),
        ((8, 8, 2, 3), "data.workers must divide 4"),
    ],
)
def test_an_uneven_layout_is_refused(layout: tuple[int, int, int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_layout(*layout)
    check_layout(8, 8, 2, 4)


def epochs(lanes: Lanes, count: int) -> Counter[tuple[int, int]]:
    """Count how often all lanes of a source read each (epoch, item), in micro-batches of one."""
    seen: Counter[tuple[int, int]] = Counter()
    for lane in range(lanes.lanes):
        for step in lanes.micro_batches(lane, START):
            if step.end.epoch == count:
                break
            seen[(step.end.epoch, int(step.micro_batch.arrays["items"][0][0]))] += 1
    return seen


def test_a_lane_reads_every_item_of_its_shards_once_per_epoch() -> None:
    seen = epochs(lanes_of(UNEVEN, micro_batch=1), 3)
    for epoch in range(3):
        assert {item for e, item in seen if e == epoch} == EVERYTHING
    assert set(seen.values()) == {1}


def test_epochs_differ_in_order_and_in_the_deal() -> None:
    lanes = lanes_of(UNEVEN)
    assert lanes.deal(0).tolist() != lanes.deal(1).tolist()
    first, second = (items(islice(lanes.micro_batches(0, Position(epoch, 0, 0)), 2)) for epoch in range(2))
    assert [item for item, _ in first] != [item for item, _ in second]


def test_a_skipped_shard_stays_skipped_after_its_repair() -> None:
    broken = lanes_of(UNEVEN, bad=[(3, 2)], skip_bad=True, micro_batch=1)
    steps = [step for lane in range(4) for step in islice(broken.micro_batches(lane, START), 40)]
    skips = {skip for step in steps for skip in step.skips}
    assert {(skip.shard, skip.chunk, skip.reason) for skip in skips} == {(3, 2, "shard 3 is damaged")}
    repaired = lanes_of(UNEVEN, micro_batch=1)
    repaired.skip(skips)
    assert items(steps) == items(step for lane in range(4) for step in islice(repaired.micro_batches(lane, START), 40))


def test_a_bad_shard_ends_the_lane_or_is_skipped_and_loses_its_remaining_chunks() -> None:
    seen = epochs(lanes_of(UNEVEN, bad=[(3, 2)], skip_bad=True, micro_batch=1), 1)
    lost = {3000 + chunk * 100 + i for chunk in (2, 3, 4) for i in range(3)}
    assert {item for _, item in seen} == EVERYTHING - lost
    with pytest.raises(InputError, match="shard 3 is damaged"):
        epochs(lanes_of(UNEVEN, bad=[(3, 2)], micro_batch=1), 1)


def test_a_cache_without_room_is_no_bad_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = lanes_of(UNEVEN, skip_bad=True, micro_batch=1)
    monkeypatch.setattr(lanes.source, "read", Mock(side_effect=CacheError("the disk of the cache is full")))
    with pytest.raises(CacheError, match="is full"):
        epochs(lanes, 1)


def test_every_example_is_traced_to_its_documents() -> None:
    order = order_of(lanes_of(UNEVEN), lanes_of(UNEVEN, number=1), weights=(1, 1))
    for batch in islice(order.stream(order.start(), 0, 1), 60):
        assert order.origins(batch) == [[str(item)] for item, _ in items([batch])]


def test_a_lane_without_text_is_refused_instead_of_read_for_ever() -> None:
    empty = Lanes(Numbers([1, 1], per_chunk=0), Echo(), seed=1, lanes=2, window=1, micro_batch=1)
    with pytest.raises(InputError, match="lane 1, epochs 0 to 10"):
        next(empty.micro_batches(1, START))


def test_data_that_the_method_cannot_use_is_refused_in_one_line() -> None:
    batcher: Any = Mock(examples=Mock(side_effect=ValueError("needs sentence boundaries")))
    lanes = Lanes(Numbers([1] * 4), batcher, seed=1, lanes=4, window=1, micro_batch=1)
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


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_no_source_is_ever_a_micro_batch_from_its_weight(weights: list[int], seed: int) -> None:
    mix, total = Mix(weights, seed), sum(weights)
    taken = [0] * len(weights)
    for t in range(1, 2 * mix.block + 2):
        taken[mix.source(t - 1)] += 1
        for count, weight in zip(taken, weights, strict=True):
            assert abs(count - Fraction(weight * t, total)) < 1


def drawn_plainly(mix: Mix, block: int) -> list[int]:
    """The sources of a block: cycles of a dictionary of edges, each found from the place on, as the first runs did."""
    rng, graph = keyed_rng("mix", mix.seed, block), dict[Any, dict[Any, int]]()
    for source in sorted(range(len(mix.shares)), key=mix.shares.__getitem__):
        for place in range(mix.block):
            start, end = mix.shares[source] * place, mix.shares[source] * (place + 1)
            for number in range(start // mix.block, -(-end // mix.block)):
                amount = min(end, (number + 1) * mix.block) - max(start, number * mix.block)
                graph.setdefault(place, {})[source, number] = amount
                graph.setdefault((source, number), {})[place] = amount
    for place in range(mix.block):
        while len(graph[place]) > 1:
            path: list[Any] = [place]
            while path[-1] not in path[:-1]:
                path.append(next(node for node in graph[path[-1]] if node not in path[-2:-1]))
            cycle = path[path.index(path[-1]) :]
            edges = list(pairwise(cycle))
            up, down = (min(graph[a][b] for a, b in edges[odd::2]) for odd in (1, 0))
            change = up if rng.integers(up + down) < down else -down
            for number, (a, b) in enumerate(edges):
                graph[a][b] = graph[b][a] = graph[a][b] + (-change if number % 2 else change)
                if not graph[a][b]:
                    del graph[a][b], graph[b][a]
    return [turn[0] for place in range(mix.block) for turn in graph[place]]


MANY = [float(size) ** 0.5 for size in (10_000_000, 3_000_000, 500_000, 77_000, 3_000)]


@pytest.mark.parametrize("weights", [[3.7], [7, 3], [0.1234, 0.8766], [9, 5, 2, 1, 1, 30, 17], MANY])
def test_the_order_is_the_one_that_it_always_was(weights: list[float]) -> None:
    mix = Mix(weights, 3)
    for block in range(2):
        drawn = [mix.source(block * mix.block + place) for place in range(mix.block)]
        assert drawn == drawn_plainly(mix, block)


def test_the_order_is_a_pure_function_of_seed_and_number() -> None:
    forwards = [Mix([0.7, 0.3], 1).source(i) for i in range(300)]
    mix = Mix([7, 3], 1)
    assert [mix.source(i) for i in reversed(range(300))] == forwards[::-1]
    assert [Mix([0.7, 0.3], 2).source(i) for i in range(300)] != forwards
    in_fours = Mix([7, 3], 1, 4)  # turns of one source
    assert [in_fours.source(i) for i in range(1200)] == [forwards[i // 4] for i in range(1200)]


@pytest.mark.parametrize("weights", [[0.1234, 0.8766], [502_939, 87_599], [10_000_000**0.5, 3_000.0**0.5, 77.7]])
def test_weights_such_as_counts_are_rounded_to_thousandths(weights: list[float]) -> None:
    mix = Mix(weights, 1)
    assert mix.block == 1000
    for share, weight in zip(mix.shares, weights, strict=True):
        assert abs(share / 1000 - weight / sum(weights)) < 1e-3
    assert Counter(mix.source(i) for i in range(1000)) == dict(enumerate(mix.shares))


@pytest.mark.parametrize("turn", [1, 4])
def test_what_is_drawn_is_counted_without_drawing_it(turn: int) -> None:
    mix, drawn = Mix([5, 2, 1], 3, turn), [0, 0, 0]
    for number in range(200):
        assert mix.drawn(number) == drawn
        drawn[mix.source(number)] += 1


def shuffled_of(size: int, seed: int = 1) -> Shuffled:
    return Shuffled(size, keyed_rng("test", seed).integers(1 << 64, size=module.ROUNDS, dtype=np.uint64))


def test_few_are_an_array_and_many_are_not() -> None:
    few, many = (shuffled(size, "labels", 3) for size in (module.MOST_STORED, module.MOST_STORED + 1))
    np.testing.assert_array_equal(few, keyed_rng("labels", 3).permutation(module.MOST_STORED))
    assert isinstance(many, Shuffled)
    assert len(many) == module.MOST_STORED + 1
    found = many[np.arange(len(many))]
    assert len(np.unique(found)) == len(found)
    assert (found.min(), found.max()) == (0, module.MOST_STORED)
    np.testing.assert_array_equal(many[np.array([7, 70_000])], found[[7, 70_000]])
    assert (shuffled(len(many), "labels", 4)[np.arange(1000)] != found[:1000]).any()  # type: ignore[union-attr]


@given(st.integers(1, 3000), st.integers(0, 100))
def test_each_number_comes_once(size: int, seed: int) -> None:
    found = shuffled_of(size, seed)[np.arange(size)]
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(size))


def test_the_order_looks_drawn_at_random() -> None:
    """Counts of independent pairs of numbers have a chi-square statistic near its degrees of freedom, 255."""
    size = 1 << 20
    found = shuffled_of(size)[np.arange(size)]
    high = found >> 16  # 16 classes
    for near in (found[1:] >> 16, np.arange(1, size) >> 16, found[1:] & 15):  # a neighbour's, the place's, low bits
        table = np.histogram2d(high[:-1], near, bins=16)[0]
        expected = (size - 1) / 256
        assert 150 < ((table - expected) ** 2 / expected).sum() < 400
