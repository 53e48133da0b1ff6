"""The argument parser of every command: an error is one line, which suggests the nearest known name."""

import argparse
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

from deepsiam.data_prep.common.errors import did_you_mean

PACKAGE = Path(__file__).parents[2]  # has the pages, also where it is installed
_CHOICE = re.compile(r"[^']*invalid choice: '(.*)' \(choose from (.*)\)")


class _Help(argparse.HelpFormatter):
    """Wraps paragraphs, but keeps a text of several lines as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def end_of_help(example: str, page: str) -> str:
    """Return how the help of a command ends: with an example, and the page that says more."""
    return f"example:\n  {example}\n\nmore: {PACKAGE / page}"


class _Version(argparse.Action):
    """Prints the version, which is looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        try:
            number = version("deepsiam")
        except PackageNotFoundError:  # run from a checkout that is only on the path
            number = "(not installed)"
        parser._print_message(f"deepsiam {number}\n", sys.stdout)
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, `PROG: what; see PROG --help`, with code 2; it has --version.

    Its help ends with an `example`, a command, and a `page` of the documentation, where they are given.
    """

    def __init__(self, *, example: str = "", page: str = "", **options: Any) -> None:
        epilog = end_of_help(example, page) if example else None
        super().__init__(**{"epilog": epilog, "formatter_class": _Help, **options})
        self.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument; one of any number, also none, is not named where required ones are missing."""
        if options.get("nargs") == "*":
            options.setdefault("default", [])
        return super().add_argument(*names, **options)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as argparse does, but refuse an unknown option here, where the known options are available."""
        options, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("-"):
                flag = word.partition("=")[0]
                self.error(f"unknown option {flag}{did_you_mean(flag, self._option_string_actions)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        if match := _CHOICE.match(message):
            message += did_you_mean(match[1], re.findall(r"[^\s,']+", match[2]))
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")
