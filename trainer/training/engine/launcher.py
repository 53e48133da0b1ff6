"""Read the launcher's command line, and the environment that it sends to the hosts, as DeepSpeed does.

Used before a run starts, by `trainer.doctor` and `trainer.supervise`: no rank reads it.
"""

import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from glob import glob
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

from deepspeed.accelerator import get_accelerator
from deepspeed.launcher import runner
from deepspeed.launcher.multinode_runner import MultiNodeRunner

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.files import read_bytes

# launchers with which DeepSpeed (0.19.8) cannot start `python -m`, and what to start the ranks with instead
WITHOUT_MODULES = {
    "slurm": "srun --ntasks-per-node 8 python -m",
    "mpich": "mpiexec -n 16 -ppn 8 -hosts node1,node2 -genv MASTER_ADDR node1 python -m",
}
# What does not arrive of a word that DeepSpeed (0.19.8) sends through pdsh and ssh to the hosts' shells: it puts a word
# with a blank into double quotes, in which it escapes double quotes alone, and sends any other word as it is; pdsh
# replaces %h, %u and %n.
_PDSH = re.compile("%[hun%]")
_EXPANSION = r"`|\$[\w({[@*#?$!-]"
_IN_QUOTES = re.compile(rf'{_EXPANSION}|\\(?=["$`\\\n]|$)', re.ASCII)
_GROUP = r"(?:[^{}]|\{[^{}]*\})*"
_BARE = re.compile(
    rf"{_EXPANSION}|[\"'\\\t\n|&;<>()]|^#|^~|^[A-Za-z_]\w*=(?:.*:)?~"
    rf"|\{{{_GROUP},{_GROUP}\}}|\{{(?:-?\d+|\w)\.\.(?:-?\d+|\w)(?:\.\.-?\d+)?\}}",
    re.ASCII,
)


def options(words: Sequence[str]) -> Namespace:
    """Return the options of a command line without its first word; raise InputError for a wrong one."""
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            return runner.parse_args(list(words))
    except SystemExit as end:
        if not end.code:
            raise  # --help
        raise InputError(f"deepspeed: {printed.getvalue().rpartition('error: ')[2]}") from None


def chosen(slots: Mapping[str, int], flags: Namespace) -> dict[str, list[int]]:
    """Return the slots of each host that the options choose from a hostfile; raise InputError for unknown or none."""
    filtered = f"--include {flags.include}" if flags.include else f"--exclude {flags.exclude}"
    try:
        hosts = runner.parse_inclusion_exclusion(slots, flags.include, flags.exclude)
    except ValueError as error:
        form = "give HOST, HOST:SLOT,SLOT or several joined by @"
        raise InputError(f"{filtered}: {error} ({flags.hostfile}): {form}") from None
    if not hosts:
        raise InputError(f"{filtered}: leaves no host of {flags.hostfile}")
    if (flags.include or flags.exclude) and (flags.num_nodes >= 0 or flags.num_gpus >= 0):
        raise InputError(f"{filtered}: DeepSpeed takes it or --num_nodes and --num_gpus, not both")
    # DeepSpeed would silently train on fewer hosts, or on more slots than exist
    if flags.num_nodes > len(hosts):
        raise InputError(f"--num_nodes {flags.num_nodes}: {flags.hostfile} has {len(hosts)} hosts")
    for host, slots in hosts.items():
        if flags.num_gpus > len(slots):
            raise InputError(f"--num_gpus {flags.num_gpus}: {host} has {len(slots)} slots in {flags.hostfile}")
    return dict(runner.apply_num_nodes_and_gpus(hosts, flags.num_nodes, flags.num_gpus))


def check(flags: Namespace, slots: Mapping[str, int], included: Mapping[str, Sequence[int]]) -> None:
    """Raise InputError where DeepSpeed would exit with a traceback instead of starting the `included` slots."""
    if flags.no_ssh:  # each host starts its own ranks
        hosts = len(included)
        if not 0 <= flags.node_rank < hosts:
            raise InputError(
                f"--node_rank {flags.node_rank}: with --no_ssh, number the {hosts} hosts of the hostfile from 0"
            )
        if not flags.master_addr:
            raise InputError("--master_addr is missing: with --no_ssh, give the address of the first host")
        return
    if len(included) == 1 and not flags.force_multi:
        return  # no launcher: the host is this one
    name = flags.launcher.lower()
    if name not in runner.LAUNCHER_CLASSES:
        raise InputError(f"--launcher {name}: unknown; choose one of {', '.join(runner.LAUNCHER_CLASSES)}")
    if flags.module and name in WITHOUT_MODULES:
        raise InputError(
            f"--launcher {name}: DeepSpeed starts no --module with it: "
            f"give {WITHOUT_MODULES[name]} {flags.user_script} ... instead of deepspeed ..."
        )
    kind = runner.LAUNCHER_CLASSES[name]
    try:
        kind.validate_active_resources(included)
        launcher = kind(flags, "", *([] if name == runner.PDSH_LAUNCHER else [slots]))
    except ValueError as error:
        raise InputError(f"--launcher {name}: {error}: edit the hostfile instead") from None
    if name == runner.OPENMPI_LAUNCHER and b"\r" in Path(flags.hostfile).read_bytes():
        raise InputError(
            f"{flags.hostfile}: mpirun reads no lines that end as in Windows: remove their carriage returns"
        )
    if not launcher.backend_exists():
        raise InputError(f"--launcher {name}: it is not installed on this host, or not in PATH")
    if name == runner.PDSH_LAUNCHER:
        _check_words(flags)


def _check_words(flags: Namespace) -> None:
    """Raise InputError if a word of a command line would arrive otherwise on the hosts, which might run part of it."""
    for word in flags.user_args:
        if culprit := lost(word):
            raise InputError(
                f"{printable(word)!r}: DeepSpeed does not quote {culprit} for the hosts' shells: write the value into "
                "the recipe, or choose a name without it"
            )
    for word in (os.getcwd(), sys.executable, flags.user_script, flags.venv_script or "", flags.master_addr):
        if culprit := " " if " " in word else _first(_BARE, word):
            raise InputError(
                f"{printable(word)!r}: DeepSpeed does not quote {culprit!r} for the hosts' shells: rename it"
            )


def lost(word: str) -> str:
    """Return what of an argument the hosts would not get, in quotes; empty if it arrives unchanged."""
    if not word:
        return "an empty word"
    if character := _first(_PDSH, word) or _first(_IN_QUOTES if " " in word else _BARE, word):
        return repr(character)
    return "the pattern of a file here" if " " not in word and glob(word) not in ([], [word]) else ""


def _first(pattern: re.Pattern[str], word: str) -> str:
    match = pattern.search(word)
    return match[0] if match else ""


def exported() -> dict[str, str]:
    """Return the variables of every host's ranks, from this environment and from `.deepspeed_env`.

    DeepSpeed quotes some values for the hosts' shells, which remove its quotes and those that the file has. Raise
    InputError if the launcher would crash at a line of that file, or a shell would change a variable.
    """
    prefixes = (*runner.EXPORT_ENVS, *get_accelerator().export_envs())
    variables = {name: value.strip() for name, value in os.environ.items() if name.startswith(prefixes)}
    for name, value in variables.items():
        # of a variable DeepSpeed does not even escape double quotes
        if culprit := _first(_IN_QUOTES, value) or '"' * ('"' in value):
            raise InputError(f"{name}: DeepSpeed does not quote {culprit!r} for the hosts' shells: unset it")
    for folder in runner.DEEPSPEED_ENVIRONMENT_PATHS:
        path = Path(folder, runner.DEEPSPEED_ENVIRONMENT_NAME)
        if path.is_file():
            for number, line in enumerate(read_bytes(path).decode(errors="replace").splitlines(), 1):
                name, sign, value = line.partition("=")
                if not sign:
                    raise InputError(f"{path}:{number}: {printable(line)!r} is not NAME=value: remove the line")
                variables[name.strip()] = _through_shell(value, f"{path}:{number}")
    return variables


def _through_shell(value: str, where: str) -> str:
    """Return what a shell makes of `export NAME=value` as DeepSpeed writes it for a value."""
    exporter = SimpleNamespace(exports={})
    MultiNodeRunner.add_export(exporter, "NAME", value)
    try:
        return shlex.split(f"NAME={exporter.exports['NAME']}")[0].removeprefix("NAME=")
    except ValueError:
        raise InputError(f"{where}: the quotes of {printable(value)} do not match, for the hosts' shells") from None
