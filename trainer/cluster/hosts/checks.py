"""What must be right before a launch: a function for each check, which returns what it found."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import amount
from deepsiam.models.arrays import on_device
from deepsiam.models.config import MethodConfig
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.cluster.hosts.choose import check_ranks, fewest_ranks, most_ranks
from deepsiam.trainer.cluster.hosts.facts import HostFacts
from deepsiam.trainer.training.data.lanes import START, Lanes
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.recipe.schema import PairCheckpointConfig, Recipe

State = Literal["ok", "warning", "wrong"]
Config = dict[str, Any]  # of DeepSpeed
SKEW_SECONDS = 5  # of a host's clock; more would make logs misleading. Includes the time of the answer's way
MOST_OF_MEMORY = 0.8  # the rest is for activations, buffers and the CUDA context
WEIGHT_BYTES, STATE_BYTES = 6, 12  # of a checkpoint: per number that it contains, and per one that is trained
OFFLOADED = ("offload_optimizer", "offload_param")  # keys of DeepSpeed's ZeRO section
SAMPLE = 3  # shards of each source


@dataclass(frozen=True)
class Finding:
    """The outcome of a check, and what to do where it is not ok."""

    check: str
    state: State
    said: str
    todo: str = ""


def answers(told: Mapping[str, HostFacts | str]) -> Iterator[Finding]:
    """Check that every host can be reached and starts this Python."""
    silent = {host: reason for host, reason in told.items() if isinstance(reason, str)}
    for host, reason in silent.items():
        yield Finding("hosts", "wrong", f"{host}: {reason}", "fix that, or remove the host from the hostfile")
    if not silent:
        yield Finding("hosts", "ok", f"{len(told)} answer")


def versions(facts: Mapping[str, HostFacts], this_host: HostFacts) -> Iterator[Finding]:
    """Check that Python, packages, the checkout and the recipe are the same as on this host."""
    differing = {host: how for host, host_facts in facts.items() if (how := host_facts.differ_from(this_host))}
    for host, how in differing.items():
        yield Finding("versions", "wrong", f"{host}: {how}", "use one checkout, one .venv and one recipe on all")
    if not differing:
        yield Finding("versions", "ok", ", ".join(f"{name} {value}" for name, value in this_host.versions.items()))


def gpus(facts: Mapping[str, HostFacts], slots: Mapping[str, int]) -> Iterator[Finding]:
    """Check that every slot has a GPU that torch sees, and that all GPUs have the same memory."""
    unseen = {host: host_facts.unseen for host, host_facts in facts.items() if host_facts.unseen}
    for host, reason in unseen.items():
        yield Finding("GPUs", "wrong", f"{host}: {reason}", "or set DS_ACCELERATOR=cpu to train on CPUs")
    if unseen:
        return
    if not any(host.gpus for host in facts.values()):
        yield Finding("GPUs", "warning", "no host has one: training on CPUs", "see nvidia-smi, if there are any")
        return
    shortages = {host: host_facts.gpus for host, host_facts in facts.items() if len(host_facts.gpus) < slots[host]}
    for host, sizes_of_host in shortages.items():
        message = f"{host}: {len(sizes_of_host)} GPUs for {slots[host]} slots"
        yield Finding("GPUs", "wrong", message, "lower slots= in the hostfile")
    sizes = [size for host_facts in facts.values() for size in host_facts.gpus]
    if len(set(sizes)) > 1:
        smallest = f"{min(sizes) / 1e9:,.0f} to {max(sizes) / 1e9:,.0f} GB of memory"
        yield Finding("GPUs", "warning", smallest, "batch.micro must fit the smallest")
    elif not shortages:
        yield Finding("GPUs", "ok", f"{len(sizes)} of {min(sizes) / 1e9:,.0f} GB")


def clocks(facts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Check that all clocks agree with this host's."""
    offsets = {host: host_facts.clock for host, host_facts in facts.items() if abs(host_facts.clock) > SKEW_SECONDS}
    for host, seconds in offsets.items():
        yield Finding("clocks", "warning", f"{host}: {seconds:+,.0f} s from here", "set it by NTP (timedatectl)")
    if not offsets:
        yield Finding("clocks", "ok", f"within {SKEW_SECONDS} s")


def shared(facts: Mapping[str, HostFacts], folder: Path, probe: str) -> Iterator[Finding]:
    """Check that all hosts see a file that this host has written where the run will be."""
    blind_hosts = [host for host, host_facts in facts.items() if probe not in host_facts.files]
    for host in blind_hosts:
        todo = "put `run` on a file system that all hosts share, at one path"
        yield Finding("run folder", "wrong", f"{host} sees another {folder} than this host", todo)
    if not blind_hosts:
        yield Finding("run folder", "ok", f"all hosts see {folder}")


def port(facts: Mapping[str, HostFacts], number: int) -> Iterator[Finding]:
    """Check that the ranks can meet at the first host's port."""
    host, host_facts = next(iter(facts.items()))
    if host_facts.port_is_free:
        yield Finding("port", "ok", f"{number} of {host} is free")
    else:
        yield Finding("port", "wrong", f"{number} of {host} is in use", "give deepspeed another --master_port")


def layout(recipe: Recipe, ranks: int) -> Iterator[Finding]:
    """Check that the ranks divide lanes, workers and micro-batches evenly."""
    try:
        check_ranks(recipe, ranks)
    except InputError as error:
        counts = [number for number in (most_ranks(recipe, ranks), fewest_ranks(recipe, ranks)) if number]
        todo = f"use {' or '.join(map(str, counts))} ranks" if counts else "change the recipe (docs/cluster.md, step 4)"
        yield Finding("layout", "wrong", str(error), todo)
        return
    workers = f" x {recipe.data.workers} workers" if recipe.data.workers else ""
    accumulation = recipe.batch.micro_batches // ranks
    message = f"ranks: {ranks}{workers}, lanes: {recipe.data.lanes}, gradient accumulation: {accumulation}"
    yield Finding("layout", "ok", message)


class Numbers(NamedTuple):
    """How many numbers a model has."""

    total: int
    trained: int
    saved: int  # those that a checkpoint contains; adapters leave out their base's

    @classmethod
    def from_model(cls, model: TrunkModel) -> Numbers:
        """Count a model's numbers."""
        parameters = dict(model.named_parameters())
        return cls(
            sum(parameter.numel() for parameter in parameters.values()),
            sum(parameter.numel() for parameter in parameters.values() if parameter.requires_grad),
            sum(parameter.numel() for name, parameter in parameters.items() if name not in model.from_base),
        )


def disk(facts: Mapping[str, HostFacts], recipe: Recipe, numbers: Numbers) -> Iterator[Finding]:
    """Check that the run folder has room for the checkpoints; also report how much the whole run will write."""
    # weights, also in half precision, and Adam's fp32 states (docs/cluster.md)
    average_bytes = 4 * numbers.saved if recipe.optimizer.ema else 0
    checkpoint_bytes = WEIGHT_BYTES * numbers.saved + STATE_BYTES * numbers.trained + average_bytes
    required_bytes, free = checkpoint_bytes * (recipe.checkpoint.keep + 1), min(host.free for host in facts.values())
    message = f"{amount(free)} free, {amount(required_bytes)} for {recipe.checkpoint.keep + 1} checkpoints"
    if recipe.checkpoint.keep_every:
        kept_for_good = recipe.steps // recipe.checkpoint.keep_every
        required_bytes += checkpoint_bytes * kept_for_good
        message += f" and {amount(kept_for_good * checkpoint_bytes)} for {kept_for_good} that are kept for good"
    if isinstance(recipe.checkpoint, PairCheckpointConfig) and recipe.checkpoint.keep_best:
        best_bytes = 2 * 4 * numbers.saved  # fp32 weights; a new one is saved before the old one is removed
        required_bytes += best_bytes
        message += f" and {amount(best_bytes)} for the best weights"
    saved = -(-recipe.steps // recipe.checkpoint.every)
    message += f"; the run writes {saved:,}, {amount(saved * checkpoint_bytes)} in all"
    state: State = "ok" if free >= 2 * required_bytes else "warning" if free >= required_bytes else "wrong"
    yield Finding("disk", state, message, "" if state == "ok" else "free some space, or lower checkpoint.keep")


def cache(facts: Mapping[str, HostFacts], sources: Mapping[str, Lanes]) -> Iterator[Finding]:
    """Check that every host has room for the remote shards that it keeps."""
    remote = [lanes.source for lanes in sources.values() if isinstance(lanes.source, ShardSource)]
    remote = [source for source in remote if source.cache]
    if not remote:
        return
    all_of_them = sum(source.manifest.total("bytes") for source in remote)
    required_bytes = min(all_of_them, max(source.cache.store.limit for source in remote if source.cache))
    host, free = min(((host, host_facts.cache_free) for host, host_facts in facts.items()), key=itemgetter(1))
    message = f"{amount(free)} free on {host}, the remote shards may take {amount(required_bytes)}"
    if free >= required_bytes:
        yield Finding("cache", "ok", message)
    else:
        yield Finding("cache", "warning", message, "free some space, or set data.cache or a lower data.cache_bytes")


def shards(sources: Mapping[str, Lanes], verify_all: bool) -> Iterator[Finding]:
    """Check a sample of the shards, or all, against the manifest's bytes; pairs were checked when opened."""
    for name, lanes in sources.items():
        source = lanes.source
        if not isinstance(source, ShardSource):
            continue
        number = len(source.manifest.shards)
        sample = range(number) if verify_all else sorted({index * number // SAMPLE for index in range(SAMPLE)})
        try:
            for index in sample:
                source.check(index)
        except InputError as error:
            yield Finding("shards", "wrong", str(error), "repair or prepare it again")
        else:
            of = f" of {name}" if name else ""
            yield Finding("shards", "ok", f"{len(sample)} of {number}{of} have the bytes of the manifest")


def memory(
    facts: Mapping[str, HostFacts],
    slots: Mapping[str, int],
    numbers: Numbers,
    config: Config,
    *,
    averaged: bool = False,
) -> Iterator[Finding]:
    """Check which ZeRO stages' weights, gradients and Adam states fit a rank (Rajbhandari et al., 2020, section 3).

    With `averaged`, the bytes of `optimizer.ema` count. Activations come on top, and are not counted; nor is what the
    configuration offloads.
    """
    zero, ranks = config.get("zero_optimization", {}), sum(slots.values())
    stage = zero.get("stage", 0)
    half, sums = ds_config.precision(config) != torch.float32, ds_config.sums_in_fp32(config)
    room = min(min(host_facts.gpus, default=host_facts.memory // slots[host]) for host, host_facts in facts.items())
    frozen = numbers.total - numbers.trained
    size_at = partial(bytes_of, half=half, trained=numbers.trained, ranks=ranks, sums=sums, frozen=frozen)
    stage_bytes = {number: size_at(number, averaged=averaged) for number in (0, 1, 2, 3)}
    sizes = ", ".join(f"ZeRO-{number} {amount(size)}" for number, size in stage_bytes.items() if number)
    message = f"{sizes}, of {amount(room)} of a rank; the layers' activations are not counted"
    fitting = [number for number, size in stage_bytes.items() if number and size <= MOST_OF_MEMORY * room]
    offloaded = [key for key in OFFLOADED if (zero.get(key) or {}).get("device", "none") != "none"]
    if stage_bytes[stage] > MOST_OF_MEMORY * room and offloaded:
        yield Finding("memory", "warning", f"{message}, nor is {' and '.join(offloaded)}", "try it: train with steps=1")
    elif not fitting:
        yield Finding("memory", "wrong", message, "use more ranks or a smaller trunk")
    elif stage_bytes[stage] > MOST_OF_MEMORY * room:
        yield Finding("memory", "wrong", message, f"set deepspeed to a file of ZeRO-{fitting[0]}")
    else:
        yield Finding("memory", "ok", message)


def bytes_of(
    stage: int, half: bool, trained: int, ranks: int, sums: bool = False, frozen: int = 0, averaged: bool = False
) -> float:
    """Return a rank's bytes for weights, gradients and Adam's fp32 states, with a copy of the weights if `half`.

    `sums`: half precision's gradients are summed in fp32; below stage 2 those of the micro-batch are kept besides.
    Of `frozen` numbers there are only the weights. With `averaged`, a moving average is kept beside the states.
    """
    gradient = (6 if stage < 2 else 4) if half and sums else 2
    states = (12 if half else 8) + 4 * averaged
    bytes_of_number = (2, gradient, states) if half else (4, 4, states)
    partitioned = stage >= 3, stage >= 2, stage >= 1
    trained_bytes = sum(
        size * trained / (ranks if is_partitioned else 1)
        for size, is_partitioned in zip(bytes_of_number, partitioned, strict=True)
    )
    return trained_bytes + bytes_of_number[0] * frozen / (ranks if partitioned[0] else 1)


def micro_batch(
    model: TrunkModel, order: Order, methods: Sequence[MethodConfig], dtype: torch.dtype
) -> Iterator[Finding]:
    """Check that the run's first micro-batch can be read, and computed on this host's GPU; on a CPU one example of it.

    The model is moved to the device, and to `dtype`.
    """
    device, source = this_device(), order.mix.source(0)
    lanes = copy.copy(list(order.sources.values())[source])
    if device.type == "cpu":
        lanes.size = 1
    model.keys = methods[source].ranking_config
    try:
        batch = next(lanes.micro_batches(0, START)).micro_batch
        sums = model.to(device, dtype).train()(**on_device(batch.arrays, device))
        terms = [weight * sums[term] / max(1, batch.counts[term]) for term, weight in methods[source].weights.items()]
        torch.stack(terms).sum().backward()
    except torch.OutOfMemoryError:
        yield Finding("micro-batch", "wrong", f"{lanes.size} examples do not fit this GPU", "lower batch.micro")
    except InputError as error:
        yield Finding("micro-batch", "wrong", str(error), "correct the data")
    else:
        yield Finding("micro-batch", "ok", f"{lanes.size} example{'s' * (lanes.size > 1)} computed here")
