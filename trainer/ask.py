"""Ask a language model for queries of a collection's documents: labels for training, without people.

python -m trainer.ask --collection C --model SmolLM2 --out C-asked
python -m trainer.ask --collection C --model SmolLM2 --kinds question keywords --examples shown.jsonl --out C-asked
python -m trainer.ask --collection C --model qwen3:8b --server http://127.0.0.1:11434/v1 --out C-asked
torchrun --nproc-per-node 8 -m trainer.ask --collection C --model Qwen3-4B --documents 10000 --out C-asked
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import margin, positive, seed
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.asking.prompts import DOCUMENT, KINDS
from deepsiam.trainer.ranking.choices import PRECISION_HELP, PRECISIONS
from deepsiam.trainer.ranking.server import EXAMPLE, TIMEOUT, is_local
from deepsiam.trainer.training.run.arguments import RanksParser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.ask"):
        from deepsiam.trainer.ranking.asking.queries import ask

        ask(arguments)


def parser() -> RanksParser:
    """Return the parser of the command."""
    parser = RanksParser(
        prog="deepsiam ask",
        description="Ask a language model for queries of a collection's documents, on any number of ranks.",
        example="deepsiam ask --collection data/mine --model SmolLM2-135M-Instruct --out data/mine-asked",
        page="docs/ask.md",
    )
    parser.add_argument("--collection", type=Path, required=True, help="the collection whose documents are read")
    parser.add_argument(
        "--model", type=Path, required=True, help="the folder of a causal language model, or its name on the --server"
    )
    parser.add_argument("--server", type=_url, metavar="URL", help=f"ask a server of this machine, such as {EXAMPLE}")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, metavar="KIND", help=f"what to ask for: {', '.join(KINDS)} (question)"
    )
    parser.add_argument(
        "--prompt", type=Path, metavar="FILE", help=f"instead of --kinds, one's own prompt, with {DOCUMENT}"
    )
    parser.add_argument(
        "--examples", type=Path, metavar="FILE", help="documents with their queries to show, as lines of JSON"
    )
    parser.add_argument("--documents", type=positive, metavar="N", help="ask about N documents, drawn by hash (all)")
    parser.add_argument(
        "--held-out", type=positive, metavar="N", help="the queries of N of them, drawn by hash, are the split test"
    )
    parser.add_argument(
        "--per-document", type=positive, default=1, metavar="N", help="queries of each kind for a document (1)"
    )
    parser.add_argument(
        "--temperature", type=margin, default=0.0, help="of the draws; 0: always the likeliest token (0)"
    )
    parser.add_argument("--seed", type=seed, default=1, help="of all draws (1)")
    parser.add_argument(
        "--document-tokens",
        type=positive,
        metavar="N",
        help="read no more of a document (512); of a server, words",
    )
    parser.add_argument("--timeout", type=positive, default=TIMEOUT, help=f"seconds for a server's answer ({TIMEOUT})")
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument("--show", action="store_true", help="show 20 queries of each kind")
    parser.add_argument("--out", type=Path, required=True, help="folder of the new collection")
    return parser


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser()
    arguments = command.parse_args(argv)
    if arguments.prompt and arguments.kinds:
        command.error("--kinds does not go with --prompt: leave out one of both")
    if arguments.server and arguments.precision:
        command.error("--precision does not go with --server: leave it out")
    if arguments.per_document > 1 and not arguments.temperature:
        command.error("--per-document needs draws, else all are the same: add --temperature 0.8")
    arguments.kinds = list(dict.fromkeys(arguments.kinds or ["question"]))
    return arguments


def _url(text: str) -> str:
    if not is_local(text):
        raise argparse.ArgumentTypeError(f"{text!r}: the server is one of this machine, such as {EXAMPLE}")
    return text


if __name__ == "__main__":
    main()
