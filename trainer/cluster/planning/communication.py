"""What ranks send each other in an optimizer step at every ZeRO stage, and how long that takes.

What DeepSpeed 0.19.8 sends is read in its source and checked by recording its calls (tests/trainer/cluster/planning):

- Stage 0 all-reduces the gradients once a step, after the last micro-batch.
- Stages 1 and 2 all-reduce them in buckets of `reduce_bucket_size` numbers: `reduce_scatter: true`, the default, does
  not scatter, as `use_multi_rank_bucket_allreduce` is on (stage_1_and_2.py, `average_tensor`). Stage 1 does so once a
  step, stage 2 after every micro-batch. Then each parameter group of the optimizer is all-gathered, whole.
- Stage 3 all-gathers every parameter above `stage3_param_persistence_threshold` in the forward pass of every
  micro-batch, and again in the backward pass unless its reuse is nearer than `stage3_max_reuse_distance` numbers: with
  the default, 1e9, models of up to half a billion numbers are gathered once. Gradients are reduce-scattered after every
  micro-batch. The parameters below the threshold are all-gathered one by one at the end of the step.

Weights travel in the precision of the training, 2 or 4 bytes a number, gradients in `communication_data_type`, which is
the same unless it is set. Where gradients in bf16 are summed in fp32 (`data_types`), stage 1 has no buckets: every rank
keeps all sums, all-reduces them in one call, or in two above half a billion, and exchanges nothing for their norm.
gloo, on CPUs, has no reduce-scatter of its own: torch does an all-reduce in its place (twice the bytes; measured). A
step also has a few all-reduces of a few numbers, which cost only latency.

The time is that of ring algorithms (Thakur, Rabenseifner and Gropp, 2005): for n ranks and a tensor of S bytes, every
rank sends (n-1)/n S in an all-gather or reduce-scatter and twice that in an all-reduce. The slowest link of the ring
decides how fast the bytes flow; the latencies of the links that a part passes add up. Ranks of one host are neighbours
in the ring, so a host sends in total what one rank sends. NCCL's all-reduce uses a double binary tree where that is
faster (NCCL 2.4): the same bytes, but a latency that grows with the logarithm of the hosts.

Assumed: all links are equally fast and used by nobody else; no rank waits for a slower one; copying and adding cost
nothing; a link attains its bandwidth at every size of message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deepsiam.trainer.training.engine import ds_config

Kind = Literal["all_reduce", "all_gather", "reduce_scatter"]
Backend = Literal["nccl", "gloo"]
GROUPS = 2  # parameter groups of the optimizer: with and without weight decay
TRAINER_CALLS = 1  # small all-reduces in a step by the trainer: targets, and how the last step went
SMALL = TRAINER_CALLS + GROUPS  # with those of DeepSpeed: the gradients' norm of each group
AT_ONCE = 500_000_000  # numbers after which stage 1 begins another call for sums in fp32


@dataclass(frozen=True)
class Link:
    """A connection as its user sees it."""

    bandwidth: float  # bytes a second, in each direction
    latency: float  # seconds of an empty message, one way


@dataclass(frozen=True)
class Network:
    """Hosts with the same number of ranks each."""

    hosts: int
    ranks_per_host: int
    between: Link  # from a host to the others, for all of its ranks together
    within: Link  # from a rank to the others of its host
    backend: Backend = "nccl"

    @property
    def ranks(self) -> int:
        """The number of all ranks."""
        return self.hosts * self.ranks_per_host


@dataclass(frozen=True)
class Zero:
    """The DeepSpeed settings that decide the communication; sizes are in numbers, not bytes."""

    stage: int
    bytes_per_number: int  # of weights on the wire: 2 or 4
    gradient_bytes: int  # of a number of the gradients on the wire
    sums_in_fp32: bool = False  # of gradients in bf16
    reduce_bucket: int = 500_000_000
    prefetch_bucket: int = 50_000_000
    persistence_threshold: int = 100_000
    reuse_distance: int = 1_000_000_000

    @classmethod
    def from_config(cls, config: Mapping[str, Any], stage: int | None = None) -> Zero:
        """Read a DeepSpeed configuration; `stage` replaces its ZeRO stage."""
        keys = config.get("zero_optimization", {})
        width = 2 if any(config.get(name, {}).get("enabled") for name in ("fp16", "bf16")) else 4
        return cls(
            stage=keys.get("stage", 0) if stage is None else stage,
            bytes_per_number=width,
            gradient_bytes={"fp16": 2, "bf16": 2, "fp32": 4}.get(config.get("communication_data_type", ""), width),
            sums_in_fp32=ds_config.sums_in_fp32(config),
            reduce_bucket=int(keys.get("reduce_bucket_size", cls.reduce_bucket)),
            prefetch_bucket=int(keys.get("stage3_prefetch_bucket_size", cls.prefetch_bucket)),
            persistence_threshold=int(keys.get("stage3_param_persistence_threshold", cls.persistence_threshold)),
            reuse_distance=int(keys.get("stage3_max_reuse_distance", cls.reuse_distance)),
        )


@dataclass(frozen=True)
class Collective:
    """Collective calls of one kind in an optimizer step."""

    kind: Kind
    size: float  # bytes of the whole tensors of all calls of one round
    calls: int  # in a round
    rounds: int = 1  # the micro-batches of a step, or 1 for once per step


def collectives(sizes: Sequence[int], zero: Zero, micro_batches: int, backend: Backend = "nccl") -> list[Collective]:
    """Return what all ranks, with `micro_batches` each, exchange in an optimizer step.

    `sizes` are those of every trained parameter in numbers, in the order of the forward pass.
    """
    width, numbers = zero.bytes_per_number, sum(sizes)
    weights, gradients, buckets = width * numbers, zero.gradient_bytes * numbers, _buckets(sizes, zero.reduce_bucket)
    small = Collective("all_reduce", 0.0, SMALL + (width == 2 and zero.stage < 3))  # one more for fp16's overflow
    if zero.stage == 0:
        return [Collective("all_reduce", gradients, buckets), small]
    if zero.stage == 1 and zero.sums_in_fp32:
        reduce = Collective("all_reduce", gradients, GROUPS if numbers > AT_ONCE else 1)
        return [reduce, Collective("all_gather", weights, GROUPS), Collective("all_reduce", 0.0, TRAINER_CALLS)]
    if zero.stage < 3:
        reduce = Collective("all_reduce", gradients, buckets, micro_batches if zero.stage == 2 else 1)
        return [reduce, Collective("all_gather", weights, GROUPS), small]
    persistent = [size for size in sizes if size <= zero.persistence_threshold]
    gathered = _gathered(sizes, zero)
    scatter: Kind = "all_reduce" if backend == "gloo" else "reduce_scatter"
    return [
        Collective("all_gather", width * gathered, math.ceil(gathered / zero.prefetch_bucket), micro_batches),
        Collective(scatter, gradients, buckets, micro_batches),
        Collective("all_gather", width * sum(persistent), len(persistent)),
        small,
    ]


def sent(collective: Collective, ranks: int) -> float:
    """Return the bytes that a rank sends in an optimizer step, without the headers of packets."""
    return collective.rounds * _passes(collective.kind) * (ranks - 1) / ranks * collective.size


def sent_by_host(step: Iterable[Collective], network: Network) -> float:
    """Return the bytes that a host sends to others in an optimizer step, without the headers of packets.

    TCP in Ethernet frames of 1,500 bytes adds 4.6 % of headers; larger packets add less.
    """
    return sum(sent(collective, network.ranks) for collective in step) if network.hosts > 1 else 0.0


def seconds(collective: Collective, network: Network) -> float:
    """Return how long a step's calls of one kind take, one after another."""
    if network.ranks == 1:
        return 0.0
    links = [network.between] if network.hosts > 1 else []
    links += [network.within] if network.ranks_per_host > 1 else []
    flow = sent(collective, network.ranks) / min(link.bandwidth for link in links)
    delay = _passes(collective.kind) * _ring_latency(network)
    if network.backend == "nccl" and collective.kind == "all_reduce":
        # from the root of a binary tree of hosts to its leaves, and along the ranks of a host; and back
        down = math.ceil(math.log2(network.hosts)) * network.between.latency
        delay = min(delay, 2 * (down + (network.ranks_per_host - 1) * network.within.latency))
    return flow + collective.rounds * collective.calls * delay


def step_seconds(step: Iterable[Collective], network: Network) -> float:
    """Return how long all communication of an optimizer step takes, none of it hidden behind computation."""
    return sum(seconds(collective, network) for collective in step)


def exposed(communication: float, compute: float, overlap: float) -> float:
    """Return the seconds of communication that a step waits for, if a share `overlap` may overlap with compute."""
    return communication - min(overlap * communication, compute)


def _passes(kind: Kind) -> int:
    return 2 if kind == "all_reduce" else 1  # how often each byte goes around the ring


def _ring_latency(network: Network) -> float:
    """Return the latency of the ranks - 1 links that a part of a tensor passes in a ring that enters each host once."""
    ranks, hosts = network.ranks, network.hosts
    if hosts == 1:
        return (ranks - 1) * network.within.latency
    round_latency = hosts * network.between.latency + (ranks - hosts) * network.within.latency
    return (ranks - 1) / ranks * round_latency


def _buckets(sizes: Iterable[int], capacity: int) -> int:
    """Count the buckets that parameters fill one after another, each of at most `capacity` numbers or one parameter."""
    buckets, filled = 0, math.inf
    for size in sizes:
        if filled + size > capacity:
            buckets, filled = buckets + 1, 0
        filled += size
    return buckets


def _gathered(sizes: Sequence[int], zero: Zero) -> int:
    """Count the numbers that stage 3 gathers in a micro-batch's forward and backward pass.

    Before a parameter is used in the backward pass, all later parameters are used twice. Where prefetching runs ahead,
    DeepSpeed releases fewer parameters: for models slightly larger than the reuse distance, it gathers up to a fifth
    less than this.
    """
    gathered, later = 0, sum(sizes)
    for size in sizes:
        later -= size
        if size > zero.persistence_threshold:
            gathered += size * (2 if 2 * later >= zero.reuse_distance else 1)
    return gathered
