"""Resuming with another number of ranks or another micro-batch size."""

import json
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.loader import Loader
from deepsiam.trainer.training.data.order import Order
from tests.trainer.training.data.integers import UNEVEN, items, lanes_of, order_of


def test_the_converted_checkpoint_stays_until_every_rank_has_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run as rank 0 of 2, which removes it: the other rank may still be reading until it joins the gather."""
    universal, events = tmp_path / "universal" / "step-00000007", []

    class Engine(SimpleNamespace):
        world = SimpleNamespace(rank=0, size=2)

        def load(self, folder: Path, tag: str, *, universal: bool) -> None:
            events.append(("load", (folder / tag).is_dir()))

        def gather(self, value: Any) -> list[Any]:
            events.append(("gather", universal.is_dir()))
            return [value] * self.world.size

    monkeypatch.setattr(checkpoint, "_convert", lambda source, universal: universal.mkdir(parents=True))
    checkpoint.resume(Engine(), tmp_path / "checkpoints" / "step-00000007", 3)  # type: ignore[arg-type]
    loaded = events.index(("load", True))
    assert ("gather", True) in events[loaded:]
    assert not universal.parent.exists()


BATCH = 24
Consumed = dict[tuple[int, int], list[tuple[int, int]]]  # the examples of each (source, lane), in order


def mixed(micro: int) -> Order:
    lanes = {"lanes": 12, "micro_batch": micro}
    return order_of(lanes_of([2] * 40 + UNEVEN, **lanes), lanes_of([1] * 12, number=1, **lanes), weights=(2, 1))


def consume(order: Order, cursor: Cursor, steps: range, micro: int, ranks: int, consumed: Consumed) -> Cursor:
    """Read the data of some steps as ranks that resume at a cursor would; add them to `consumed`."""
    cursor = cursor.with_micro(micro, steps.start)
    streams = [Loader(order, rank, ranks, 0).micro_batches(cursor) for rank in range(ranks)]
    own = [TypeAdapter(Cursor).validate_json(json.dumps(cursor.to_json())) for _ in range(ranks)]
    for _ in steps:
        taken = [list(islice(stream, BATCH // micro // ranks)) for stream in streams]
        for batch in sorted((batch for batches in taken for batch in batches), key=lambda batch: batch.index):
            consumed.setdefault((batch.source, batch.lane), []).extend(items([batch]))
        for cursor_of_rank, batches in zip(own, taken, strict=True):
            cursor_of_rank.advance(batches, BATCH // micro)
    return Cursor.merged(own)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([(1, 4), (2, 3), (2, 12), (4, 2), (6, 1), (12, 2), (24, 1)])),
        min_size=2,
        max_size=4,
    )
)
def test_micro_batches_of_another_size_lose_and_repeat_no_example(parts: list[tuple[int, tuple[int, int]]]) -> None:
    """Each part: a number of steps, with a micro-batch size and a number of ranks that can share the micro-batches."""
    consumed: Consumed = {}
    cursor, step = Cursor(mixed(1).start(), micro_sizes={0: parts[0][1][0]}), 0
    for steps, (micro, ranks) in parts:
        cursor = consume(mixed(micro), cursor, range(step, step + steps), micro, ranks, consumed)
        step += steps
        assert cursor.micro_batches * micro == step * BATCH
        assert cursor.micro == micro
    assert sum(map(len, consumed.values())) == step * BATCH
    for (source, lane), seen in consumed.items():  # the same as the lane's examples read one by one
        lanes = list(mixed(1).sources.values())[source]
        alone = lanes.micro_batches(lane, mixed(1).start()[source][lane])
        assert seen == items(islice(alone, len(seen)))


def test_a_larger_micro_batch_counts_earlier_ones_as_of_its_size() -> None:
    cursor = Cursor([], 240, micro_sizes={0: 4, 10: 2}).with_micro(8, 30)
    assert cursor.micro_batches == 60
    assert cursor.with_micro(8, 40) is cursor
