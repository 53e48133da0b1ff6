"""Objects whose pickles run code, as an attacker would put them into a checkpoint."""

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


class Calls:
    """Pickled as a call of a function: who unpickles it calls that function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def callers(witness: Path) -> dict[str, Calls]:
    """By kind, objects that leave a file at `witness` if they run."""
    return {
        "system": Calls(os.system, f"touch {witness}"),
        "eval": Calls(eval, f"open({str(witness)!r}, 'w')"),
        "process": Calls(subprocess.Popen, ["touch", str(witness)]),
        "partial": Calls(functools.partial, os.system),
        "getattr": Calls(getattr, "", "join"),
    }


def plant(file: Path, value: object) -> None:
    """Replace the contents of one of DeepSpeed's files by its own with one more key."""
    torch.save({**torch.load(file, weights_only=False), "more": value}, file)
