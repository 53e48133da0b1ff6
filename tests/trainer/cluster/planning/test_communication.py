"""The communication of a step: bytes against a simulated ring, seconds against hand computation."""

import pytest

from deepsiam.trainer.cluster.planning.communication import (
    Collective,
    Kind,
    Link,
    Network,
    Zero,
    collectives,
    exposed,
    seconds,
    sent,
    sent_by_host,
    step_seconds,
)
from deepsiam.trainer.training.engine import ds_config

SIZES = [3_000, 100, 4_000, 50, 5_000]
NUMBERS = sum(SIZES)


def walk(kind: Kind, ranks: int, per_host: int, size: int) -> tuple[list[int], list[int]]:
    """The bytes that each rank and each host sends while parts of a tensor go around a ring of all ranks."""
    part = size // ranks
    by_rank, by_host = [0] * ranks, [0] * (ranks // per_host)
    for _ in range((2 if kind == "all_reduce" else 1) * (ranks - 1)):
        for rank in range(ranks):
            by_rank[rank] += part
            neighbour = (rank + 1) % ranks
            if neighbour // per_host != rank // per_host:
                by_host[rank // per_host] += part
    return by_rank, by_host


def network(hosts: int, per_host: int, **changes: object) -> Network:
    return Network(hosts, per_host, Link(100.0, 0.5), Link(1000.0, 0.01), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("hosts", "per_host"), [(1, 4), (2, 1), (2, 4), (4, 2), (8, 1)])
def test_bytes_are_those_of_a_ring(kind: Kind, hosts: int, per_host: int) -> None:
    by_rank, by_host = walk(kind, hosts * per_host, per_host, 960)
    step = [Collective(kind, 960.0, 1)]
    assert [sent(step[0], hosts * per_host)] * len(by_rank) == by_rank
    assert [sent_by_host(step, network(hosts, per_host))] * hosts == by_host


def test_one_rank_sends_nothing() -> None:
    step = collectives(SIZES, Zero(3, 4, 4), 2)
    assert sent_by_host(step, network(1, 1)) == step_seconds(step, network(1, 1)) == 0
    assert {sent(collective, 1) for collective in step} == {0}


def numbers(step: list[Collective], kind: Kind, width: int = 4) -> float:
    return sum(one.size * one.rounds for one in step if one.kind == kind) / width


def test_stages_1_and_2_all_reduce_and_gather_what_was_updated() -> None:
    first, second = (collectives(SIZES, Zero(stage, 4, 4, reduce_bucket=7_100), 3) for stage in (1, 2))
    assert (numbers(first, "all_reduce"), numbers(first, "all_gather")) == (NUMBERS, NUMBERS)
    assert (numbers(second, "all_reduce"), numbers(second, "all_gather")) == (3 * NUMBERS, NUMBERS)
    # 3,000 + 100 + 4,000 fill the first bucket
    assert [(one.calls, one.rounds) for one in (first[0], second[0])] == [(2, 1), (2, 3)]
    assert collectives([10, 500, 10], Zero(1, 4, 4, reduce_bucket=100), 1)[0].calls == 3  # a larger one has its own


@pytest.mark.parametrize(("reuse_distance", "again"), [(10**9, 0), (12_000, 3_000 + 100), (0, NUMBERS)])
def test_stage_3_gathers_again_what_is_reused_far_away(reuse_distance: int, again: int) -> None:
    zero = Zero(3, 4, 4, persistence_threshold=0, reuse_distance=reuse_distance)
    step = collectives(SIZES, zero, 2)
    assert numbers(step, "all_gather") == 2 * (NUMBERS + again)
    assert numbers(step, "reduce_scatter") == 2 * NUMBERS


def test_stage_3_gathers_small_parameters_once_a_step_and_one_by_one_and_gloo_reduces_all() -> None:
    step = collectives(SIZES, Zero(3, 4, 4, persistence_threshold=100), 2, "gloo")
    assert numbers(step, "all_gather") == 2 * (NUMBERS - 150) + 150
    assert any(one.size == 4 * 150 and one.calls == 2 and one.rounds == 1 for one in step)
    assert (numbers(step, "reduce_scatter"), numbers(step, "all_reduce")) == (0, 2 * NUMBERS)


GLOO = {"backend": "gloo"}
SECONDS = [
    # 2 x 3/4 of 800 bytes at 100 bytes a second; 2 x 3 messages of half a second for each of 5 calls
    pytest.param(Collective("all_reduce", 800.0, 5), network(4, 1, **GLOO), 12 + 5 * 3, id="ring of hosts"),
    pytest.param(Collective("all_gather", 800.0, 1, rounds=2), network(4, 1, **GLOO), 2 * (6 + 1.5), id="rounds"),
    pytest.param(Collective("all_reduce", 800.0, 1), network(1, 4, **GLOO), 1.2 + 6 * 0.01, id="within a host"),
    # 2 of the 8 links lead to another host; a part passes 7 of the 8
    pytest.param(Collective("all_gather", 0.0, 1), network(2, 4), 7 / 8 * (2 * 0.5 + 6 * 0.01), id="ranks in hosts"),
    pytest.param(Collective("all_reduce", 0.0, 1), network(64, 8), 2 * (6 * 0.5 + 7 * 0.01), id="NCCL's tree"),
    pytest.param(Collective("all_gather", 0.0, 1), network(64, 8), 511 / 512 * (64 * 0.5 + 448 * 0.01), id="no tree"),
]


@pytest.mark.parametrize(("collective", "over", "expected"), SECONDS)
def test_seconds_are_those_of_a_ring_or_tree(collective: Collective, over: Network, expected: float) -> None:
    assert seconds(collective, over) == pytest.approx(expected)


def test_what_runs_beside_compute_is_hidden_up_to_its_length() -> None:
    assert [exposed(10.0, *of) for of in ((100.0, 0.0), (100.0, 0.8), (3.0, 0.8))] == pytest.approx([10, 2, 7])


@pytest.mark.parametrize("name", ["zero1_bf16", "zero2_bf16", "zero3_bf16", "cpu"])
def test_a_configuration_is_read(name: str) -> None:
    stage, width = (1, 4) if name == "cpu" else (int(name[4]), 2)
    zero = Zero.from_config(ds_config.load(name)[1])
    assert (zero.stage, zero.bytes_per_number, zero.gradient_bytes) == (stage, width, width)
    in_fp32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    zero = Zero.from_config({**ds_config.load(name)[1], **in_fp32})
    assert (zero.gradient_bytes, zero.sums_in_fp32) == (4, name != "cpu")
    assert zero.reduce_bucket == 50_000_000
    assert zero.persistence_threshold == (10_000 if zero.stage == 3 else 100_000)
    assert Zero.from_config(ds_config.load(name)[1], stage=3).stage == 3
