"""The speed of a run before it begins: one micro-batch timed here, and the exchange of gradients as measured."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.arrays import on_device
from deepsiam.models.config import MethodConfig
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.hosts.checks import Finding, State
from deepsiam.trainer.cluster.hosts.network import in_seconds
from deepsiam.trainer.training.data.lanes import START, Lanes
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.engine.device import use_threads_of_a_rank as use_threads_of_a_rank
from deepsiam.trainer.training.recipe.schema import Recipe

SECONDS = 6.0  # about, for the whole measurement
RUNS = 2
MOST_EXCHANGE = 0.5  # of a step: above it, more ranks hardly make a step faster


@dataclass(frozen=True)
class Pace:
    """How fast one rank computes: the forward and backward pass of a micro-batch."""

    seconds: float
    tokens: float  # of text in it, as a run counts them
    examples: int  # how many were timed
    device: str


def time_micro_batch(model: TrunkModel, order: Order, methods: Sequence[MethodConfig], dtype: torch.dtype) -> Pace:
    """Time the forward and backward pass of a micro-batch on this host's device; of fewer examples if that takes long.

    Args:
        model: it is moved to the device, and to `dtype`.
        order: of the run; its first micro-batch is read.
        methods: of every source.
        dtype: of weights and gradients.

    Raises:
        InputError: the data cannot be read, or the micro-batch does not fit the device.
    """
    device = this_device()
    first = order.mix.source(0)
    lanes, weights = list(order.sources.values())[first], methods[first].weights
    model.keys = methods[first].ranking_config
    try:
        model.to(device, dtype).train()
        batch, examples = _first(lanes, 1), 1
        seconds = _seconds(model, batch, weights, device)
        if seconds < SECONDS / 2:  # else keep the first time: one example, no warm-up
            again = _seconds(model, batch, weights, device)
            examples = max(1, min(lanes.size, int(SECONDS / (RUNS + 1) / again)))
            batch = _first(lanes, examples)
            seconds = min(_seconds(model, batch, weights, device) for _ in range(RUNS))
    except torch.OutOfMemoryError:
        raise InputError("a micro-batch does not fit this GPU") from None
    scale = lanes.size / examples
    threads = torch.get_num_threads()
    cpu = f"{threads} thread{'s' * (threads > 1)} of this CPU"
    name = torch.cuda.get_device_name() if device.type == "cuda" else cpu
    return Pace(seconds * scale, batch.tokens * scale, examples, name)


def predicted(recipe: Recipe, pace: Pace, ranks: int, exchange: float) -> Iterator[Finding]:
    """Predict tokens a second and the days to the last step; warn if exchanging gradients takes most of a step.

    The optimizer's own time, loading and evaluation are not counted, and nothing overlaps.

    Args:
        recipe: of the run.
        pace: of one rank.
        ranks: in the run.
        exchange: seconds a step in which gradients are exchanged.
    """
    computing = recipe.batch.micro_batches / ranks * pace.seconds
    step = computing + exchange
    tokens = recipe.batch.micro_batches * pace.tokens
    timed = "" if pace.examples == recipe.batch.micro else f", of {pace.examples} of {recipe.batch.micro} examples"
    said = (
        f"predicted: {tokens / step:,.0f} tokens/s, {in_days(recipe.steps * step)} to step {recipe.steps:,}; a step "
        f"takes {in_seconds(step)}, {exchange / step:.0%} of it for the gradients; timed on {pace.device}{timed}"
    )
    state: State = "warning" if exchange > MOST_EXCHANGE * step else "ok"
    todo = "use fewer ranks, a larger batch.size or a faster network" if state == "warning" else ""
    yield Finding("speed", state, said, todo)


def in_days(seconds: float) -> str:
    """Format as `2.3 days`, `5.1 hours`, `4.0 minutes` or `12 seconds`."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _first(lanes: Lanes, examples: int) -> MicroBatch:
    smaller = copy.copy(lanes)
    smaller.size = examples
    return next(smaller.micro_batches(0, START)).micro_batch


def _seconds(model: TrunkModel, batch: MicroBatch, weights: Mapping[str, float], device: torch.device) -> float:
    start = time.perf_counter()
    sums = model(**on_device(batch.arrays, device))
    objective = sum(weight * sums[term] / max(1, batch.counts[term]) for term, weight in weights.items())
    assert isinstance(objective, torch.Tensor)
    objective.backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)
    return time.perf_counter() - start
