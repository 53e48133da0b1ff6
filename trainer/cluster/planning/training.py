"""The plan of a training on hosts of one kind: the recipe that their ranks can train, its memory, step and hours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deepsiam.trainer.cluster.hosts.checks import MOST_OF_MEMORY, bytes_of
from deepsiam.trainer.cluster.planning.communication import (
    Backend,
    Link,
    Network,
    Zero,
    collectives,
    exposed,
    sent_by_host,
    step_seconds,
)
from deepsiam.trainer.cluster.planning.compute import MeasuredSpeed, Work
from deepsiam.trainer.cluster.planning.roofline import Roofline
from deepsiam.trainer.training.engine.hardware import Device
from deepsiam.trainer.training.recipe.schema import BatchConfig, PretrainRecipe

OVERLAP = {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.5}  # by stage: DeepSpeed's `overlap_comm` is off below stage 3
HOUR = 3600.0
STAGES = (1, 2, 3)
SHARD_BYTES = 2.3  # of a token in shards: docs/data.md
GATHERED = 1e9  # the most weights that stage 3 holds whole: DeepSpeed's default of stage3_max_live_parameters
BATCHES = (1, 4, 16)  # multiples of the recipe's batch.size, to find where more hosts pay off
PAYS = 0.5  # more hosts pay off while each does at least this share of what one host alone does with ZeRO-1


@dataclass(frozen=True)
class Machines:
    """Hosts of one kind; rates are in bytes a second, times in seconds."""

    gpus: int  # of a host, one rank each
    device: Device
    speed: Roofline | MeasuredSpeed
    between: Link  # from a host to the others
    within: Link  # from a rank to the others of its host
    backend: Backend
    overlap: float | None  # the share of communication that may overlap with compute; None: as OVERLAP
    disk: float  # at which a host reads shards

    def network(self, ranks: int) -> Network:
        """Return the network of whole hosts."""
        return Network(ranks // self.gpus, self.gpus, self.between, self.within, self.backend)


@dataclass(frozen=True)
class Layout:
    """A recipe whose lanes and micro-batches the ranks share evenly."""

    recipe: PretrainRecipe
    ranks: int
    changes: tuple[str, ...]  # the overrides that change the recipe; empty where it is unchanged
    same_experiment: bool  # whether a step has as many examples as before, each compared with as many others

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a rank has in a step."""
        return self.recipe.batch.micro_batches // self.ranks


def fit(recipe: PretrainRecipe, ranks: int) -> Layout:
    """Change a recipe as little as needed for a number of ranks.

    First the micro-batch becomes smaller and lanes are added, which hardly affects the training. Only where a step has
    fewer examples than ranks, or their number does not divide evenly, it gets more examples, and the run fewer steps.
    """
    size, lanes, workers, steps = recipe.batch.size, recipe.data.lanes, recipe.data.workers, recipe.steps
    if size % ranks:
        size = math.ceil(size / ranks) * ranks
        steps = math.ceil(recipe.steps * recipe.batch.size / size)
    rank_examples = size // ranks
    micro = max(n for n in range(1, min(recipe.batch.micro, rank_examples) + 1) if rank_examples % n == 0)
    if lanes % (shares := ranks * max(1, workers)):
        lanes = math.ceil(lanes / shares) * shares
    fitted_ranks = None if recipe.ranks is None else ranks
    fitted = {
        "batch.size": (recipe.batch.size, size),
        "batch.micro": (recipe.batch.micro, micro),
        "data.lanes": (recipe.data.lanes, lanes),
        "steps": (recipe.steps, steps),
        "ranks": (recipe.ranks, fitted_ranks),
    }
    changes = tuple(f"{key}={value}" for key, (recipe_value, value) in fitted.items() if value != recipe_value)
    update = {
        "batch": BatchConfig(size=size, micro=micro),
        "data": recipe.data.model_copy(update={"lanes": lanes}),
        "steps": steps,
        "ranks": fitted_ranks,
    }
    compared_micro = micro if recipe.method.compares_micro_batch else recipe.batch.micro
    same_experiment = (size, compared_micro) == (recipe.batch.size, recipe.batch.micro)
    return Layout(recipe.model_copy(update=update), ranks, changes, same_experiment)


@dataclass(frozen=True)
class Step:
    """An optimizer step, in seconds."""

    compute: float
    communication: float  # all of it
    exposed: float  # the part that compute does not hide
    loading: float  # reading of a host's shards, at the same time as everything else
    sent: float  # bytes that a host sends to others
    tokens: float  # of text, all ranks

    @property
    def seconds(self) -> float:
        """The seconds from one step to the next."""
        return max(self.compute + self.exposed, self.loading)


@dataclass(frozen=True)
class PlanRow:
    """The plan for a number of hosts."""

    hosts: int
    ranks: int
    changes: Sequence[str]
    same_experiment: bool
    micro: int
    micro_batches: int
    steps: int
    step: Step
    step_seconds: float
    tokens_per_second: float
    read: float  # bytes of shards that a host reads a second
    read_share: float  # of what the disk can read
    loaders: float  # loader processes that a rank needs to keep up
    fits: Sequence[int]  # the ZeRO stages that fit the memory
    hours: float  # of all steps: saves, validations and failures are not counted
    gpu_hours: float


def plan_step(layout: Layout, work: Work, zero: Zero, machines: Machines) -> Step:
    """Plan an optimizer step."""
    batch, network, micro_batches = layout.recipe.batch, machines.network(layout.ranks), layout.micro_batches
    partitions = layout.ranks if zero.stage else 1
    compute = micro_batches * machines.speed.micro_batch(work, batch.micro)
    compute += machines.speed.optimizer(sum(work.trained), partitions)
    exchanged = collectives(work.trained, zero, micro_batches, machines.backend)
    communication = step_seconds(exchanged, network)
    overlap = OVERLAP[zero.stage] if machines.overlap is None else machines.overlap
    waited = exposed(communication, compute, overlap)
    tokens = batch.size * work.tokens
    loading = SHARD_BYTES * tokens / network.hosts / machines.disk
    return Step(compute, communication, waited, loading, sent_by_host(exchanged, network), tokens)


def plan(recipe: PretrainRecipe, work: Work, config: Mapping[str, Any], machines: Machines, hosts: int) -> PlanRow:
    """Plan a training on a number of hosts, in the nearest form of the recipe that their ranks can share."""
    layout = fit(recipe, hosts * machines.gpus)
    zero, steps = Zero.from_config(config), layout.recipe.steps
    step = plan_step(layout, work, zero, machines)
    rate = step.tokens / step.seconds
    hours = steps * step.seconds / HOUR
    micro = layout.recipe.batch.micro
    return PlanRow(
        hosts=hosts,
        ranks=layout.ranks,
        changes=layout.changes,
        same_experiment=layout.same_experiment,
        micro=micro,
        micro_batches=layout.micro_batches,
        steps=steps,
        step=step,
        step_seconds=step.seconds,
        tokens_per_second=rate,
        read=rate / hosts * SHARD_BYTES,
        read_share=step.loading / step.seconds,
        loaders=work.batching * micro * layout.micro_batches / step.seconds,
        fits=fitting(work, zero, machines, layout.ranks, micro, averaged=bool(recipe.optimizer.ema)),
        hours=hours,
        gpu_hours=hours * layout.ranks,
    )


def fitting(work: Work, zero: Zero, machines: Machines, ranks: int, micro: int, *, averaged: bool = False) -> list[int]:
    """Return the stages whose states, with the trunk's activations for a micro-batch, fit a rank's memory.

    Stage 3 also holds the weights that it has gathered: the whole model, up to a billion weights. With `averaged`, all
    keep `optimizer.ema`, too.
    """
    width, room = zero.bytes_per_number, MOST_OF_MEMORY * machines.device.memory
    trained = sum(work.trained)
    model_bytes = partial(bytes_of, half=width == 2, trained=trained, ranks=ranks, frozen=work.parameters - trained)
    states = {stage: model_bytes(stage, sums=zero.sums_in_fp32, averaged=averaged) for stage in STAGES}
    stage_bytes = {stage: size + micro * work.kept_bytes for stage, size in states.items()}
    stage_bytes[3] += width * min(work.parameters, GATHERED)
    return [stage for stage, size in stage_bytes.items() if size <= room]


@dataclass(frozen=True)
class Limit:
    """Up to how many hosts more of them pay off, and what sets this limit."""

    batch: int
    stage: int
    hosts: int
    because: str  # too few examples in a step, or what takes the time; "" where even `max_hosts` pay off


def limits(
    recipe: PretrainRecipe, work: Work, config: Mapping[str, Any], machines: Machines, max_hosts: int
) -> list[Limit]:
    """Return for each batch size and stage up to how many hosts, a power of 2 up to `max_hosts`, pay off (`PAYS`)."""
    all_limits = []
    for factor in BATCHES:
        size = factor * recipe.batch.size
        scaled = recipe.model_copy(update={"batch": recipe.batch.model_copy(update={"size": size})})
        one_host = plan_step(fit(scaled, machines.gpus), work, Zero.from_config(config, STAGES[0]), machines)
        for stage in STAGES:
            hosts, because = _limit(scaled, work, Zero.from_config(config, stage), machines, max_hosts, one_host)
            all_limits.append(Limit(size, stage, hosts, because))
    return all_limits


def _limit(
    recipe: PretrainRecipe, work: Work, zero: Zero, machines: Machines, max_hosts: int, one_host: Step
) -> tuple[int, str]:
    hosts = 1
    while hosts <= max_hosts:
        if recipe.batch.size % (hosts * machines.gpus):
            return hosts // 2, "batch.size"
        step = plan_step(fit(recipe, hosts * machines.gpus), work, zero, machines)
        if PAYS * hosts * step.seconds > one_host.seconds:
            idle, waiting = hosts * step.compute - one_host.compute, hosts * step.exposed - one_host.exposed
            return hosts // 2, "small micro-batches" if idle > waiting else "communication"
        hosts *= 2
    return hosts // 2, ""
