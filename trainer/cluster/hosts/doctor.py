"""All checks of a recipe and its hosts in turn, from the cheapest to the job itself: what `trainer.doctor` reports."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.files import os_errors_as_input_errors
from deepsiam.trainer.cluster.hosts import checks, network
from deepsiam.trainer.cluster.hosts.checks import Finding
from deepsiam.trainer.cluster.hosts.facts import HostFacts, ask, existing, gather
from deepsiam.trainer.cluster.hosts.launch import Launch
from deepsiam.trainer.jobs import finetuning, pretraining
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine import ds_config, launcher
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load_any
from deepsiam.trainer.training.run.job import Job, check_job

THIS_HOST = "this host"
FIRST_OF_ALL = {"hosts", "versions", "GPUs", "interface", "port", "layout"}  # what a launch needs


@dataclass(frozen=True)
class Cluster:
    """Where a training will run: the launcher with its options, and the ranks of each host.

    With `THIS_HOST` alone, which is asked without ssh, 0 ranks mean one for each GPU, or one on a CPU.
    """

    launcher: Sequence[str]
    slots: Mapping[str, int]
    port: int = 29500  # where the ranks will meet, on the first host
    ssh_port: int | None = None

    @classmethod
    def from_options(cls, arguments: argparse.Namespace) -> Cluster:
        """Return the hosts that the command line names, as DeepSpeed would choose them."""
        launcher = [str(Path(sys.executable).with_name("deepspeed"))]
        if not arguments.hostfile:
            for name in ("include", "ssh_port", "master_addr"):
                if getattr(arguments, name):
                    raise InputError(f"--{name}: is for several hosts: add --hostfile, or leave it out")
            return cls(launcher, {THIS_HOST: arguments.ranks or 0}, arguments.master_port)
        flags = {"hostfile": arguments.hostfile, "include": arguments.include, "ssh_port": arguments.ssh_port}
        launcher += [f"--{name}={value}" for name, value in flags.items() if value]
        launch = Launch.from_command(
            [*launcher, network.MODULE, str(arguments.recipe), *arguments.overrides], len(launcher)
        )
        assert launch
        slots = {host: len(ranks) for host, ranks in launch.slots.items()}
        address = [f"--master_addr={arguments.master_addr}"] if arguments.master_addr else []
        return cls([*launcher, *address], slots, arguments.master_port, arguments.ssh_port)

    def start(self, slots: Mapping[str, int]) -> list[str]:
        """Return the command line that starts these ranks, without the module."""
        # DeepSpeed takes the GPUs that are visible only where their number is not given
        visible = "CUDA_VISIBLE_DEVICES" in os.environ and not self.slots.get(THIS_HOST)
        accelerators = [f"--num_accelerators={slots[THIS_HOST]}"] if THIS_HOST in slots and not visible else []
        return [*self.launcher, *accelerators, f"--master_port={self.port}"]


def report(arguments: argparse.Namespace) -> None:
    """Print the findings on the recipe and hosts that the arguments name; raise SystemExit(2) if anything is wrong."""
    recipe = load_any(arguments.recipe, arguments.overrides)
    findings = list(examine(recipe, arguments.recipe, Cluster.from_options(arguments), arguments.full))
    print(json.dumps([asdict(finding) for finding in findings], indent=1) if arguments.json else table(findings))
    if any(finding.state == "wrong" for finding in findings):
        raise SystemExit(2)


def examine(
    recipe: PretrainRecipe | FinetuneRecipe, file: Path, cluster: Cluster, verify_all: bool = False
) -> Iterator[Finding]:
    """Yield the findings of every check of a recipe in a file; `verify_all`: of all shards, not only of a sample."""
    cache = recipe.data.cache if isinstance(recipe, PretrainRecipe) else Path()
    place = existing(recipe.run)
    is_local = list(cluster.slots) == [THIS_HOST]
    with _probe(place) as probe:
        this_host = gather(recipe.run, cluster.port, file, cache)
        told: Mapping[str, HostFacts | str]
        if is_local:
            told = {THIS_HOST: replace(this_host, clock=0.0)}
        else:
            told = ask(list(cluster.slots), cluster.ssh_port, place, cluster.port, file, cache)
    slots = {host: number or len(this_host.gpus) or 1 for host, number in cluster.slots.items()}
    facts = {host: answer for host, answer in told.items() if isinstance(answer, HostFacts)}
    findings = list(checks.answers(told))
    if facts:
        findings += checks.versions(facts, this_host)
        findings += checks.gpus(facts, slots)
        findings += checks.clocks(facts)
        findings += checks.shared(facts, place, probe)
        findings += checks.port(facts, cluster.port)
    findings += checks.layout(recipe, sum(slots.values()))
    if facts and sum(slots.values()) > 1:
        findings += _interface(facts, is_local)
    yield from findings
    can_start = not any(finding.state == "wrong" and finding.check in FIRST_OF_ALL for finding in findings)
    yield from _examine_recipe(recipe, cluster.start(slots) if can_start else [], facts, slots, verify_all)


def _examine_recipe(
    recipe: PretrainRecipe | FinetuneRecipe,
    start: Sequence[str],
    facts: Mapping[str, HostFacts],
    slots: Mapping[str, int],
    verify_all: bool,
) -> Iterator[Finding]:
    """Yield the findings on the recipe's data and model; the command `start` starts its ranks, unless it is empty."""
    try:
        job, config = _build(recipe), ds_config.load(recipe.deepspeed)[1]
    except InputError as error:
        yield Finding("recipe", "wrong", str(error), "correct the recipe or its data")
        return
    numbers = checks.Numbers.from_model(job.model)
    trains = "" if numbers.trained == numbers.total else f", of which it trains {numbers.trained:,}"
    yield Finding("recipe", "ok", f"{recipe.method.name}, {numbers.total:,} parameters{trains}")
    damaged = list(checks.shards(job.order.sources, verify_all))
    yield from damaged
    if facts:
        yield from checks.memory(facts, slots, numbers, config, averaged=bool(recipe.optimizer.ema))
        yield from checks.disk(facts, recipe, numbers)
        yield from checks.cache(facts, job.order.sources)
    if not start:
        yield Finding("network", "warning", "not tried: no rank could start", "fix the above first")
    elif sum(slots.values()) > 1:
        yield network.meet(start)
    if not any(finding.state == "wrong" for finding in damaged):  # after the ranks, which need the GPU's memory
        yield from checks.micro_batch(job.model, job.order, recipe.methods, ds_config.precision(config))


def _interface(facts: Mapping[str, HostFacts], is_local: bool) -> Iterator[Finding]:
    try:
        variables = os.environ if is_local else launcher.exported()
    except InputError as error:
        yield Finding("interface", "wrong", str(error), "DeepSpeed's launcher would crash at it")
        return
    yield from network.interface(facts, variables)


def table(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, followed by what to do."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<7}  {finding.check:<{width}}  {printable(finding.said)}")
        if finding.todo:
            lines.append(f"{'':<7}  {'':<{width}}  -> {finding.todo}")
    return "\n".join(lines)


def _build(recipe: PretrainRecipe | FinetuneRecipe) -> Job:
    with redirect_stdout(sys.stderr):  # its remarks are not part of the table
        resume_from = checkpoint.newest(recipe.run)  # a launch continues it, or is refused
        if isinstance(recipe, PretrainRecipe):
            job = pretraining.build(recipe, resume_from)
        else:
            job = finetuning.build(recipe, resume_from)
        check_job(job)
        return job


@contextmanager
def _probe(folder: Path) -> Iterator[str]:
    """Write a file with a new name for the hosts to see; yield the name."""
    path = folder / f".seen-by-all-{uuid.uuid4().hex}"
    with os_errors_as_input_errors(path, "write"):
        path.touch(exist_ok=False)
    try:
        yield path.name
    finally:
        path.unlink()
