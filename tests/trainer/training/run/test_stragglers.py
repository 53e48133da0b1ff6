"""Slow ranks and hosts: which ones are named, why, and how often."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.run import stragglers
from deepsiam.trainer.training.run.stragglers import MESSAGE_BYTES, Stragglers, message_of_each, slow_ones

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
@pytest.mark.parametrize("slow", [0, 1])
def test_a_host_that_sends_slowly_is_the_one(hosts: int, slow: int) -> None:
    received = [[0.1, 0.1] for _ in range(hosts)]
    received[(slow + 1) % hosts][0] = received[slow - 1][1] = 5.0
    assert message_of_each(received) == [5.0 if host == slow else 0.1 for host in range(hosts)]


@pytest.mark.parametrize("hosts", [3, 4, 7])
def test_a_host_that_receives_slowly_is_the_one(hosts: int) -> None:
    received = [[0.1, 0.1] for _ in range(hosts)]
    received[1] = [5.0, 5.0]
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
