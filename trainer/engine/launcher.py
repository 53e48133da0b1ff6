"""DeepSpeed's own reading of its launcher's command line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from deepspeed.launcher import runner

from data_prep.common.errors import InputError


def options(words: Sequence[str]) -> Namespace:
    """Return the options of a command line without its first word; exit, as the launcher does, on an unknown one."""
    return runner.parse_args(list(words))


def chosen(slots: Mapping[str, int], given: Namespace) -> dict[str, list[int]]:
    """Return the slots of each host that options choose among those of a hostfile.

    Raises:
        InputError: --include or --exclude name others, or leave none.
    """
    try:
        hosts = runner.parse_inclusion_exclusion(slots, given.include, given.exclude)
    except ValueError as error:
        name = "--include" if given.include else "--exclude"
        raise InputError(f"{name} {given.include or given.exclude}: {error} ({given.hostfile})") from None
    if not hosts:
        raise InputError(f"--exclude {given.exclude}: leaves no host of {given.hostfile}")
    return dict(runner.apply_num_nodes_and_gpus(hosts, given.num_nodes, given.num_gpus))
