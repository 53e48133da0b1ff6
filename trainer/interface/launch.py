"""The ranks of a training on this host or several, by DeepSpeed's launcher: its command line.

`deepsiam pretrain` becomes this command line, `deepsiam.pretrain(gpus=N)` starts it, `deepsiam supervise` restarts it.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser

TRAININGS = ("pretrain", "finetune")
RUNNER = "deepspeed.launcher.runner"  # the module of the command `deepspeed`


def parser(verb: str) -> Parser:
    """Return the parser of a training with its launch: of `deepsiam pretrain` or `deepsiam finetune`."""
    parser: Parser = import_module(f"deepsiam.trainer.{verb}").parser()
    parser.usage = "%(prog)s [options] RECIPE [key=value ...] [-- further options of DeepSpeed's launcher]"
    group = parser.add_argument_group("launch")
    group.add_argument(
        "--gpus", type=positive, metavar="N", help="ranks on each host (one for each GPU; without GPUs, one)"
    )
    group.add_argument("--hostfile", type=_file, metavar="FILE", help="the hosts (this one), a line each: NAME slots=N")
    return parser


def command(verb: str, words: Sequence[str]) -> list[str]:
    """Return the launcher's command line for the words after `deepsiam pretrain`; exit where they are wrong.

    Raise InputError where torch does not see this host's GPUs.
    """
    end = [*words, "--"].index("--")
    given = parser(verb).parse_intermixed_args(words[:end])
    options = [*words[end + 1 :]]
    if given.hostfile:
        options += ["--hostfile", str(given.hostfile)]
    from deepsiam.trainer.training.engine.device import settle_on_cpu  # torch takes seconds

    ranks = given.gpus or (1 if settle_on_cpu() and not given.hostfile else None)
    if ranks:
        options += ["--num_accelerators", str(ranks)]
    flags = [f"--{name.replace('_', '-')}" for name in ("resume", "find_lr") if getattr(given, name)]
    training = ["--module", f"deepsiam.trainer.{verb}", str(given.recipe), *given.overrides, *flags]
    return [sys.executable, "-m", RUNNER, "-q", *options, *training]


def start(verb: str, words: Sequence[str]) -> None:
    """Run the launcher in this process until its ranks have ended; exit with their code if they fail."""
    with exit_on_input_error(f"deepsiam {verb}"):
        arguments = command(verb, words)[3:]
        from deepsiam.trainer.training.engine.launcher import runner

        runner.main(arguments)


def launcher_command(words: Sequence[str]) -> list[str]:
    """Return a command line as it is, but `deepsiam pretrain ...` as the launcher's."""
    if len(words) > 1 and Path(words[0]).name == "deepsiam" and words[1] in TRAININGS:
        return command(words[1], words[2:])
    return [*words]


def _file(text: str) -> Path:
    # DeepSpeed only warns about a missing hostfile, and trains on this host alone
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file")
    return Path(text)
