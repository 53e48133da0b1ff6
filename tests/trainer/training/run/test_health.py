"""What a run measures and judges: held-out losses, its rate, who is to blame, when it must end, slow ranks."""

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import START, Skip
from deepsiam.trainer.training.data.opened import HeldOut
from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.engine.engine import StepResult
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from deepsiam.trainer.training.run import stragglers
from deepsiam.trainer.training.run.agree import agree
from deepsiam.trainer.training.run.health import MOST_OVERFLOWS, MOST_ROLLBACKS, MOST_ZERO_GRADIENTS, Health, blame
from deepsiam.trainer.training.run.measures import LearningRate, held_out_losses
from deepsiam.trainer.training.run.stragglers import MESSAGE_BYTES, Stragglers, message_of_each, slow_ones
from tests import toy
from tests.trainer.training.data.integers import UNEVEN, Echo, Numbers

NAN = float("nan")


class OneRank:
    world, terms, fp16, device = World(0, 1, 0, 1), ["mlm", "decoder"], False, torch.device("cpu")
    spread = 1e-2  # how much the second number of a vector depends on the text

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.stack([np.ones(len(ids)), 1 + self.spread * (ids * mask).sum(1)], 1).astype(np.float32)


class Origins:
    names = ["wiki"]

    def origins(self, batch: LaneBatch) -> list[list[str]]:
        return [[f"document {i}"] for i in range(8)]


def health(on_nan: str = "stop", fp16: bool = False, most: int = 1) -> Health:
    engine = OneRank()
    engine.fp16 = fp16
    faults = SimpleNamespace(on_nan=on_nan, most_bad_shards=most)
    return Health(SimpleNamespace(run="runs/x", faults=faults), engine, Origins())  # type: ignore[arg-type]


def batch(index: int) -> LaneBatch:
    return LaneBatch(MicroBatch({}, {}, 0), index, 0, index % 4, START, START, ())


def result(*losses: list[float], norm: float = 1.0, skipped: bool = False) -> StepResult:
    return StepResult(torch.tensor(norm, dtype=torch.float64), 1.0, skipped, torch.tensor(losses))


def judged(checks: Health, step: int, batches: list[LaneBatch], of_step: StepResult) -> bool:
    """Judge a step as the loop does: by its flags, at the next exchange."""
    checks.expect(step, batches, of_step)
    return checks.judge(*checks.flags().tolist())


def test_who_is_to_blame() -> None:
    sound, nan, inf = (torch.tensor([[first, 2.0], [3.0, last]]) for first, last in ((1, 4), (1, NAN), (math.inf, 4)))
    assert blame(sound, 1.0, overflow=False) == []
    assert blame(nan, 1.0, overflow=False) == [1]
    assert blame(inf, NAN, overflow=True) == [0]
    assert blame(sound, NAN, overflow=False) == [0, 1]
    assert blame(sound, math.inf, overflow=True) == []


def test_a_loss_that_is_nan_ends_the_run_with_lane_micro_batch_and_documents() -> None:
    with pytest.raises(SharedError) as stopped:
        judged(health(), 37, [batch(74), batch(75)], result([1.0, 2.0], [1.0, NAN]))
    message = str(stopped.value)
    assert message.startswith("step 37: the decoder loss is nan: micro-batch 75, wiki lane 3, documents document 0;")
    assert "document 4 and 3 more" in message
    assert "--show 37" in message


def test_the_run_goes_back_a_few_times_only() -> None:
    checks = health(on_nan="skip")
    for _ in range(MOST_ROLLBACKS):
        assert not judged(checks, 5, [batch(1)], result([NAN, 1.0]))
    with pytest.raises(SharedError, match="went back 3 times without reaching a new checkpoint"):
        judged(checks, 5, [batch(1)], result([NAN, 1.0]))
    checks.rollbacks = 0  # as after a save
    assert not judged(checks, 6, [batch(1)], result([NAN, 1.0]))


def test_a_bad_shard_is_recorded_also_beside_a_step_that_is_not_sound() -> None:
    checks, cursor = health(on_nan="skip"), Cursor([[START] * 4])
    checks.expect(5, [batch(1)], result([NAN, 1.0]))
    skip = Skip(0, 1, 0, 2, "damaged")
    engine: Any = checks.engine
    engine.methods = []
    agreed = agree(engine, checks, cursor, [replace(batch(2), skips=(skip,))], False)
    assert not agreed.sound
    assert cursor.skips == {skip}


def test_fp16_overflow_is_normal_up_to_40_times_in_a_row() -> None:
    checks = health(fp16=True)
    overflow = result([1.0, 1.0], norm=float("inf"), skipped=True)
    for of_step in [*[overflow] * MOST_OVERFLOWS, result([1.0, 1.0]), *[overflow] * MOST_OVERFLOWS]:
        assert judged(checks, 1, [batch(1)], of_step)
    with pytest.raises(SharedError, match="fp16 overflow skipped 41 steps in a row"):
        judged(checks, 1, [batch(1)], overflow)


def test_bad_shards_count_once_each_and_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    checks = health(most=1)
    damaged = [Skip(0, epoch, 7, 2, "shard 7 is damaged") for epoch in range(3)]
    cursor = Cursor([[START]], 0, set(damaged))
    checks.check_bad_shards(cursor, damaged)
    assert "bad shard 1 of at most 1, skipped: shard 7 is damaged\n" in capsys.readouterr().err
    missing = Skip(0, 1, 8, 0, "shard 8 is missing")  # skipped by a slower lane, which is in an earlier epoch
    cursor.skips.add(missing)
    with pytest.raises(SharedError, match="2 bad shards, faults.most_bad_shards is 1; among them: shard 8 is missing$"):
        checks.check_bad_shards(cursor, [missing])


def test_a_gradient_of_zero_is_said_after_ten_steps_in_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    checks = health()
    for step in [*range(1, MOST_ZERO_GRADIENTS), *range(11, 11 + 2 * MOST_ZERO_GRADIENTS)]:
        assert judged(checks, step, [batch(1)], result([1.0, 1.0], norm=1e-9))
        if step == MOST_ZERO_GRADIENTS - 1:
            assert judged(checks, 10, [batch(1)], result([1.0, 1.0], norm=1e-3))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("step 20: the gradient was zero in the last 10 steps: nothing is learned: check method.pool")


def documents(*texts: list[int]) -> LaneBatch:
    ids = np.array([text + [0] * (4 - len(text)) for text in texts])
    micro_batch = MicroBatch({"document_ids": ids, "document_mask": ids > 0}, {}, 0)
    return LaneBatch(micro_batch, 0, 0, 0, START, START, ())


def test_equal_vectors_of_different_documents_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    checks = health()
    for spread in (1e-2, 1e-7, 1e-7, 1e-2, 1e-7):
        checks.engine.spread = spread  # type: ignore[attr-defined]
        checks.compare_vectors(3, [documents([2, 5, 3], [2, 6, 3]), documents([2, 5, 3])])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("step 3: 2 different documents have the same vector: nothing tells texts apart")
    checks.compare_vectors(4, [documents([2, 5, 3], [2, 5, 3])])  # one text
    checks.compare_vectors(5, [batch(1)])  # no documents: a pre-training
    assert capsys.readouterr().err == ""


HELD_OUT = HeldOut(Numbers(UNEVEN), Echo(), seed=1, window=2, micro_batch=4)


def sine_loss(batch: MicroBatch, source: int) -> torch.Tensor:
    return torch.tensor([float(np.sin(batch.arrays["items"]).sum())])


def test_the_loss_is_the_mean_over_every_target_and_each_batch_is_progress() -> None:
    engine: Any = OneRank()
    engine.terms, engine.evaluate, beat = ("loss",), Mock(side_effect=sine_loss), Mock()
    losses = held_out_losses([HELD_OUT], engine, beat)
    batches = list(HELD_OUT.micro_batches(0, 1))
    expected = math.fsum(float(sine_loss(batch, 0)) for batch in batches)
    assert losses == {"loss": pytest.approx(expected / (sum(UNEVEN) * 3), rel=1e-12)}
    assert beat.call_count == engine.evaluate.call_count == len(batches)


@pytest.mark.parametrize(("warmup_steps", "said"), [(10, ""), (11, "warmup_steps=11 is more than steps=10: the lear")])
def test_a_warm_up_that_never_ends_is_said(capsys: pytest.CaptureFixture[str], warmup_steps: int, said: str) -> None:
    optimizer = {"lr": 1e-4, "warmup_steps": warmup_steps}
    rate = LearningRate(build(PretrainRecipe, {**toy.SEED_RECIPE, "optimizer": optimizer}, "test"))
    err = capsys.readouterr().err
    assert said in err
    assert bool(err) == bool(said) == (rate.at(9) < 1e-4)


SECONDS = st.floats(0.001, 100)


@dataclass
class Ranks:
    """The engine of rank 0 among several; `others` has the other ranks' seconds, `received` the messages' seconds."""

    hosts: list[tuple[str, int]]
    others: dict[int, tuple[float, float]] = field(default_factory=dict)
    received: list[list[float]] = field(default_factory=list)
    gradient_bytes = 4 * MESSAGE_BYTES
    device = torch.device("cpu")

    def __post_init__(self) -> None:
        self.world = World(0, len(self.hosts), 0, 1)

    def gather(self, value: object) -> list[tuple[str, int]]:
        return self.hosts

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        if values.shape == (len(self.received), 2):
            return torch.tensor(self.received)
        for rank, own in self.others.items():
            values[:, rank] = torch.tensor(own)
        return values


def test_one_is_slow_that_is_slower_by_half_than_the_median_of_the_others_and_by_enough() -> None:
    assert list(slow_ones([1.0, 1.0, 4.0, 1.0], 1.0)) == [(2, 4.0, 1.0)]
    assert list(slow_ones([1.0, 1.0, 1.4, 1.0], 0.1)) == []
    assert list(slow_ones([1.0, 1.0, 4.0, 1.0], 3.5)) == []
    assert list(slow_ones([4.0, 1.0], 1.0)) == [(0, 4.0, 1.0)]
    assert list(slow_ones([5.0, 5.0, 1.0, 1.0, 1.0], 1.0)) == [(0, 5.0, 1.0), (1, 5.0, 1.0)]


@given(st.lists(SECONDS, min_size=2, max_size=9), st.floats(0, 10))
def test_never_the_faster_half(times: list[float], least: float) -> None:
    for number, own, others in slow_ones(times, least):
        assert own == times[number] > 1.5 * others
        assert sum(time < own for time in times) >= len(times) // 2


@pytest.mark.parametrize("hosts", [2, 3, 4, 7])
def test_a_host_that_sends_or_receives_slowly_is_the_one(hosts: int) -> None:
    for slow in (0, 1):
        received = [[0.1, 0.1] for _ in range(hosts)]
        received[(slow + 1) % hosts][0] = received[slow - 1][1] = 5.0
        assert message_of_each(received) == [5.0 if host == slow else 0.1 for host in range(hosts)]
    if hosts > 2:  # of two, each sends what the other receives
        received = [[0.1, 0.1] if host != 1 else [5.0, 5.0] for host in range(hosts)]
        assert message_of_each(received) == [5.0 if host == 1 else 0.1 for host in range(hosts)]


def test_a_slow_rank_is_named_once_until_it_is_no_longer_slow() -> None:
    engine = Ranks([("node1", 0), ("node1", 1), ("node1", 2)], {1: (1.1, 0.0), 2: (6.0, 0.0)})
    compared = Stragglers(engine)  # type: ignore[arg-type]
    figures, lines = compared.compare(5, 6.0, 1.0, 0.0)
    assert figures == {"ranks/forward_slowest": pytest.approx(6.0 / 1.1), "ranks/data_wait_longest": 0.0}
    assert lines == []  # too short a period
    _, lines = compared.compare(5, 6.0, 1.0, 0.0)
    assert lines == ["rank 2 on node1 is slow: its forward passes take 12 s of 12 s, those of the others 2.1 s"]
    assert compared.compare(10, 12.0, 1.0, 0.0)[1] == []
    engine.others[2] = (1.0, 0.0)
    assert compared.compare(10, 12.0, 1.0, 0.0)[1] == []
    engine.others[2] = (9.0, 0.0)
    assert len(compared.compare(10, 12.0, 1.0, 0.0)[1]) == 1


def test_waiting_for_data_counts_by_its_share_of_the_time() -> None:
    engine = Ranks([("node1", 0), ("node2", 1)], {1: (1.0, 3.0)})
    _, lines = Stragglers(engine).compare(10, 20.0, 1.0, 0.01)  # type: ignore[arg-type]
    assert lines == ["rank 1 on node2 is slow: it waits for data 3 s of 20 s, the others 0.01 s"]
    engine.others[1] = (1.0, 0.9)
    _, lines = Stragglers(engine).compare(10, 20.0, 1.0, 0.01)  # type: ignore[arg-type]
    assert lines == []


def test_slow_messages_count_by_what_a_step_would_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    received = [[0.01, 0.01], [0.01, 0.01], [0.01, 0.01], [0.01, 0.01]]
    received[3][0] = received[1][1] = 0.2  # from host 2, whose first rank is 4
    engine = Ranks([(f"node{rank // 2}", rank % 2) for rank in range(8)], received=received)
    engine.others = dict.fromkeys(range(1, 8), (1.0, 0.0))
    monkeypatch.setattr(stragglers.Ring, "measure", lambda ring: torch.zeros(4, 2, dtype=torch.float64))
    # 5 steps of eight messages each: 0.19 s x 40 = 7.6 s, more than a twentieth of 20 s but not of 160 s
    figures, lines = Stragglers(engine).compare(5, 20.0, 1.0, 0.0)  # type: ignore[arg-type]
    assert figures["ranks/message_slowest"] == pytest.approx(20)
    assert lines == ["rank 4 on node2 is slow: 262,144 bytes take 0.2 s from or to its host, and 0.01 s between others"]
    assert Stragglers(engine).compare(5, 160.0, 1.0, 0.0)[1] == []  # type: ignore[arg-type]
