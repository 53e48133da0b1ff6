"""`deepsiam VERB`: every command of this project by one name; it parses before it imports torch."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.interface import launch

VERBS = {
    "prepare": "turn text into shards and collections, and inspect them",
    "pretrain": "pre-train an encoder on shards of text",
    "finetune": "fine-tune a matching model on a collection",
    "evaluate": "rank a collection with systems, and compare them in one table",
    "ask": "ask a language model for queries of a collection's documents",
    "mine": "mine hard negatives, score candidates, expand documents, keep consistent pairs",
    "embed": "write a teacher's vectors of texts, for a student to learn",
    "index": "make an index of a collection's documents",
    "search": "search an index",
    "merge": "merge runs of one start into the mean of their weights",
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
    """Run the command of a verb; return its exit code, or None for 0."""
    words = sys.argv[1:] if words is None else words
    if not words or words[0] not in VERBS:
        _parser().parse_args(words)  # prints help, the version or a script, or refuses the words; and exits
    verb, rest = words[0], words[1:]
    if verb in launch.TRAININGS:
        launch.start(verb, rest)
        return None
    code: int | None = _module(verb).main(rest)
    return code


def _module(verb: str) -> ModuleType:
    return import_module(f"deepsiam.{MODULES.get(verb, f'trainer.{verb}')}")


def _parser() -> Parser:
    parser = Parser(
        prog="deepsiam",
        description="Train text encoders that find documents, and use them.",
        epilog="deepsiam VERB --help has the options of each.",
    )
    parser.add_argument("--completion", action=_Completion, choices=("bash", "zsh"), help="print a shell's completion")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for verb, summary in VERBS.items():
        verbs.add_parser(verb, help=summary)
    return parser


class _Completion(argparse.Action):
    """Prints the script by which a shell completes verbs, options and files."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, option: str | None = None) -> NoReturn:
        from shtab import FILE, complete

        verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        for verb in VERBS:
            verbs.choices[verb] = launch.parser(verb) if verb in launch.TRAININGS else _module(verb).parser()
            for action in verbs.choices[verb]._actions:
                if action.type is Path:
                    action.complete = FILE
        print(complete(parser, shell))
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
