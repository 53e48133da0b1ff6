"""Choose the hosts to train on: those that are fit, with as many ranks as the recipe's layout allows."""

from collections.abc import Mapping
from dataclasses import dataclass

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.facts import HostFacts, ask, gather
from deepsiam.trainer.cluster.hosts.launch import Launch
from deepsiam.trainer.training.data.loader import check_layout
from deepsiam.trainer.training.recipe.schema import Recipe


@dataclass(frozen=True)
class HostChoice:
    """A command line, how many ranks it starts and all hosts have, and by name why hosts are left out."""

    command: list[str]  # empty without ranks
    ranks: int
    all_ranks: int
    left_out: Mapping[str, str]


def check_ranks(recipe: Recipe, ranks: int) -> None:
    """Raise InputError where the recipe expects or allows another number of ranks than the hosts have."""
    if recipe.ranks not in (None, ranks):
        raise InputError(f"ranks: {recipe.ranks} are expected, and the hosts have {ranks}")
    check_layout(recipe.data.lanes, recipe.batch.micro_batches, ranks, recipe.data.workers)


def choose(launch: Launch, recipe: Recipe, resumes: bool) -> HostChoice:
    """Ask all hosts, and choose those that are fit; 0 ranks where too few are.

    The first of them train with as many ranks as the layout allows, or with the recipe's `ranks` if it has any. Raise
    InputError if the port where they would meet is in use, unless the run resumes: its earlier ranks may be ending.
    """
    this_host = gather()
    told = ask(list(launch.slots), launch.ssh_port, ".", launch.port)
    with_gpus = any(isinstance(facts, HostFacts) and facts.gpus for facts in told.values())
    left_out = {}
    for host, facts in told.items():
        reason = facts if isinstance(facts, str) else unfit(facts, this_host, len(launch.slots[host]), with_gpus)
        if reason:
            left_out[host] = reason
    fit = [host for host in launch.slots if host not in left_out]
    first_host = told[fit[0]] if fit else None
    if isinstance(first_host, HostFacts) and not first_host.port_is_free and not resumes:
        raise InputError(
            f"port {launch.port} of {fit[0]} is in use, perhaps by another run: give deepspeed another --master_port"
        )
    if not left_out:
        return HostChoice(list(launch.command), launch.ranks, launch.ranks, {})
    ranks = most_ranks(recipe, sum(len(launch.slots[host]) for host in fit))
    return HostChoice(launch.on(fit, ranks) if ranks else [], ranks, launch.ranks, left_out)


def unfit(facts: HostFacts, this_host: HostFacts, slots: int, with_gpus: bool) -> str:
    """Return why a host cannot take part in a training that is started here; empty if it can."""
    if with_gpus and len(facts.gpus) < slots:
        return f"{len(facts.gpus)} GPUs for {slots} slots"
    return facts.differ_from(this_host)


def most_ranks(recipe: Recipe, maximum: int) -> int:
    """Return the largest number of ranks, up to `maximum`, with which the run computes the same numbers; 0 if none."""
    return next((ranks for ranks in range(maximum, 0, -1) if _allowed(recipe, ranks)), 0)


def fewest_ranks(recipe: Recipe, minimum: int) -> int:
    """Return the smallest number of ranks, from `minimum` on, that the recipe allows; 0 if none is."""
    return next((ranks for ranks in range(minimum, recipe.data.lanes + 1) if _allowed(recipe, ranks)), 0)


def _allowed(recipe: Recipe, ranks: int) -> bool:
    try:
        check_ranks(recipe, ranks)
    except InputError:
        return False
    return True
