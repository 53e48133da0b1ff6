"""Show what a run reads, step by step, without training: `python -m trainer.trace RECIPE [key=value ...]`.

Prints `step digest` for every requested optimizer step. The digest hashes the step's micro-batches in any order, with
masks and all other random choices: it is the same for any number of ranks and loader workers, and changes if anything
that the model reads changes. A run's own recipe is RUN/recipe.yaml.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_intermixed_args(argv)
    with exit_on_input_error("trainer.trace"):
        from deepsiam.trainer.jobs.trace import print_steps

        print_steps(arguments)


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(prog="deepsiam trace", description="Show what a run reads, without training.")
    parser.add_argument("recipe", type=Path, help="a YAML file, as in recipes/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as optimizer.lr=2e-4")
    parser.add_argument("--world-size", type=positive, default=1, metavar="W", help="number of ranks (1)")
    parser.add_argument("--workers", type=_from_0, default=0, metavar="N", help="loader workers of each rank (0)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--steps", type=_steps, default=(1, 10), metavar="A:B", help="steps A to B, both included (1:10)")
    mode.add_argument("--show", type=positive, metavar="STEP", help="decode what one step reads")
    return parser


def _from_0(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of steps, as 1:10")
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    main()
