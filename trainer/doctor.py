"""Check, before a launch, what a training would meet on its hosts: `python -m trainer.doctor RECIPE --hostfile H`.

Prints a line for each check: ok, warning or wrong, with what to do. The exit code is 2 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path

from data_prep.common.argument_types import positive
from data_prep.common.errors import InputError, exit_on_input_error, printable
from data_prep.common.files import os_errors_as_input_errors
from data_prep.common.imports import without_collecting
from data_prep.common.parser import Parser

with without_collecting():
    from trainer import finetune, pretrain
    from trainer.engine import ds_config
    from trainer.hosts import checks, hostfile
    from trainer.hosts.ask import ask
    from trainer.hosts.checks import Finding
    from trainer.hosts.facts import Facts, existing, gather
    from trainer.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
    from trainer.recipe.yaml_file import build, read
    from trainer.run.job import Job

HERE = "this host"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _parser().parse_intermixed_args(argv)
    with exit_on_input_error("trainer.doctor"):
        values = read(chosen.recipe, chosen.overrides)
        recipe = build(kind_of(values), values, str(chosen.recipe))
        slots = hostfile.read(chosen.hostfile) if chosen.hostfile else {HERE: chosen.ranks or 0}
        findings = list(examine(recipe, slots, chosen.master_port, chosen.ssh_port, chosen.full))
        print(json.dumps([asdict(finding) for finding in findings], indent=1) if chosen.json else table(findings))
        if any(finding.state == "wrong" for finding in findings):
            raise SystemExit(2)


def examine(
    recipe: PretrainRecipe | FinetuneRecipe,
    slots: dict[str, int],
    port: int,
    ssh_port: int | None = None,
    full: bool = False,
) -> Iterator[Finding]:
    """Yield what every check finds.

    Args:
        recipe: what will be trained.
        slots: the ranks of each host; of `HERE` alone, asked without ssh, 0 stands for one a GPU, or one.
        port: where the ranks will meet, on the first host.
        ssh_port: of the hosts' ssh servers.
        full: verify all shards, not a sample.
    """
    here = gather(recipe.run, port)
    place = existing(recipe.run)
    with _probe(place) as probe:
        alone = list(slots) == [HERE]
        told = {HERE: _alone(gather(recipe.run, port))} if alone else ask(list(slots), ssh_port, place, port)
    slots = {host: number or len(here.gpus) or 1 for host, number in slots.items()}
    facts = {host: one for host, one in told.items() if isinstance(one, Facts)}
    yield from checks.answers(told)
    if facts:
        yield from checks.versions(facts, here)
        yield from checks.gpus(facts, slots)
        yield from checks.clocks(facts)
        yield from checks.shared(facts, place, probe)
        yield from checks.port(facts, port)
    yield from checks.layout(recipe, sum(slots.values()))
    try:
        job = _build(recipe)
    except InputError as error:
        yield Finding("recipe", "wrong", str(error), "mend the recipe or its data")
        return
    parameters = sum(parameter.numel() for parameter in job.model.parameters())
    yield Finding("recipe", "ok", f"{recipe.method.name}, {parameters:,} parameters")
    yield from checks.shards(job.order.sources, full)
    if facts:
        yield from checks.memory(facts, slots, parameters, ds_config.load(recipe.deepspeed)[1])
        yield from checks.disk(facts, recipe, parameters)


def table(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, and below it what to do."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<7}  {finding.check:<{width}}  {printable(finding.said)}")
        if finding.todo:
            lines.append(f"{'':<7}  {'':<{width}}  -> {finding.todo}")
    return "\n".join(lines)


def _alone(facts: Facts) -> Facts:
    return Facts(**{**asdict(facts), "clock": 0.0})  # from the clock here


def _build(recipe: PretrainRecipe | FinetuneRecipe) -> Job:
    with redirect_stdout(sys.stderr):  # what it remarks on is not part of the table
        if isinstance(recipe, PretrainRecipe):
            return pretrain.build(recipe)
        return finetune.build(recipe)


@contextmanager
def _probe(folder: Path) -> Iterator[str]:
    """Write a file of a new name for the hosts to see; yield the name."""
    path = folder / f".seen-by-all-{uuid.uuid4().hex}"
    with os_errors_as_input_errors(path, "write"):
        path.touch(exist_ok=False)
    try:
        yield path.name
    finally:
        path.unlink()


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trainer.doctor", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", type=Path, metavar="RECIPE")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("--hostfile", type=Path, help="the hosts; without it, this one alone")
    hosts.add_argument("--ranks", type=positive, help="on this host (one for each GPU, or one)")
    parser.add_argument("--master_port", type=int, default=29500, help="where the ranks will meet (%(default)s)")
    parser.add_argument("--ssh_port", type=int, help="of the hosts' ssh servers")
    parser.add_argument("--full", action="store_true", help="verify every shard, not a sample")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser


if __name__ == "__main__":
    main()
