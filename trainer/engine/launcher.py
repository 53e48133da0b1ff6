"""DeepSpeed's own reading of its launcher's command line, and of the environment that it sends to the hosts."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from deepspeed.accelerator import get_accelerator
from deepspeed.launcher import runner

from data_prep.common.errors import InputError, printable
from data_prep.common.files import read_bytes


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


def exported() -> dict[str, str]:
    """Return the variables that the launcher sends to every host, of this environment and of `.deepspeed_env`.

    Raises:
        InputError: a line of that file, at which the launcher would crash.
    """
    prefixes = (*runner.EXPORT_ENVS, *get_accelerator().export_envs())
    variables = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    for folder in runner.DEEPSPEED_ENVIRONMENT_PATHS:
        path = Path(folder, runner.DEEPSPEED_ENVIRONMENT_NAME)
        if path.is_file():
            for number, line in enumerate(read_bytes(path).decode(errors="replace").splitlines(), 1):
                name, sign, value = line.partition("=")
                if not sign:
                    raise InputError(f"{path}:{number}: {printable(line)!r} is not NAME=value: remove the line")
                variables[name] = value
    return variables
