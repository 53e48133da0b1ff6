"""The argument parser of every command: an error is one line, which suggests the nearest known name."""

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from data_prep.common.errors import did_you_mean

_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, `PROG: what; see PROG --help`, with code 2."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as argparse does, but refuse an unknown option here, where the known options are available."""
        chosen, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("-"):
                flag = word.partition("=")[0]
                self.error(f"unknown option {flag}{did_you_mean(flag, self._option_string_actions)}")
        return chosen, unknown

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        if found := _CHOICE.search(message):
            message += did_you_mean(found[1], re.findall(r"[^\s,']+", found[2]))
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")
