"""The arguments of commands that a launcher starts on several ranks; read before torch is imported."""

import argparse
import os
import time
from pathlib import Path
from typing import Any, NoReturn

from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.training.launchers import LAUNCHERS, RANK_0_FIRST_SECONDS


class RanksParser(Parser):
    """A parser that speaks on rank 0 alone: all ranks find the same error in the same words."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
        ranks = (os.environ[names[0]] for names in LAUNCHERS if names[0] in os.environ)
        self.is_rank_0 = next(ranks, "0") == "0"

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Let rank 0 end first: the launcher ends all ranks as soon as one fails, and rank 0 may not have spoken."""
        if status and not self.is_rank_0:
            time.sleep(RANK_0_FIRST_SECONDS)
        super().exit(status, message)

    def _print_message(self, message: str, file: Any = None) -> None:
        if self.is_rank_0:
            super()._print_message(message, file)


def training_parser(**options: str) -> RanksParser:
    """Return the parser of a command that trains a recipe; `options` are the parser's own."""
    parser = RanksParser(**options)
    parser.add_argument("recipe", type=Path, help="a YAML file, such as those in recipes/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as optimizer.lr=2e-4")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--resume", action="store_true", help="resume the run from its newest whole checkpoint")
    way.add_argument("--find-lr", action="store_true", help="train 95 steps at rising learning rates; suggest one")
    return parser
