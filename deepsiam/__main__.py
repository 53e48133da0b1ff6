"""`deepsiam VERB`: every command of this project by one name; it parses before it imports torch."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.interface import launch

VERBS = {
    "prepare": "turn text into shards and collections, and inspect them",
    "pretrain": "pre-train an encoder on shards of text",
    "finetune": "fine-tune a matching model on a collection",
    "evaluate": "rank a collection with systems, and compare them in one table",
    "mine": "mine hard negatives, score candidates, expand documents, keep consistent pairs",
    "index": "make an index of a collection's documents",
    "search": "search an index",
    "export": "export a trained model as a folder that other libraries load",
    "report": "plot every run below a folder",
    "analyse": "draw what a model has learned",
    "trace": "show what a run reads, without training",
    "doctor": "check the hosts of a training before it is launched",
    "supervise": "start a training, and restart it after a fault",
    "plan": "compute what a training would take on other machines",
    "keys": "print the keys of a recipe: types, defaults, meaning",
    "demo": "pre-train, fine-tune, evaluate and export a small encoder",
}
MODULES = {"prepare": "data_prep.__main__"}  # all others are trainer.VERB


def main(words: Sequence[str] | None = None) -> int | None:
    """Run the command; return its exit code, None for 0."""
    words = sys.argv[1:] if words is None else words
    if not words or words[0] not in VERBS:
        parser().parse_args(words)  # answers --help and --version, and refuses everything else
        raise AssertionError
    verb, rest = words[0], words[1:]
    if verb in launch.TRAININGS:
        return launch.start(verb, rest)
    code: int | None = _module(verb).main(rest)
    return code
