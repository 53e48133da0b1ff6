"""Draw what a model has learned: learning curves, the papers' figures, what a loss depends on.

python -m trainer.analyse curves --tag loss/decoder --out F.png SEED=RUN no-CLS=RUN ...      Figures 3 and 5
python -m trainer.analyse cosine --shards HELD_OUT --out F.png "k = 2"=RUN all=RUN ...        Figure 4
python -m trainer.analyse learning --collection C --split dev --over steps --out F.png SEED=RUN ...       Figure 7
python -m trainer.analyse attention RUN --shards HELD_OUT                                     Table 4
python -m trainer.analyse wiring RECIPE [key=value ...] --out F.png   what each target of a method's losses depends on
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.parser import Parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_args(argv)
    with exit_on_input_error("trainer.analyse"):
        arguments.run(arguments)


def _curves(arguments: argparse.Namespace) -> None:
    from deepsiam.trainer.analysis.curves import print_curves

    print_curves(arguments.runs, arguments.tag, arguments.out)


def _cosine(arguments: argparse.Namespace) -> None:
    from deepsiam.trainer.analysis.seed import print_cosines

    print_cosines(arguments.runs, arguments.shards, arguments.out)


def _learning(arguments: argparse.Namespace) -> None:
    from deepsiam.trainer.analysis.learning import print_learning

    print_learning(arguments)


def _attention(arguments: argparse.Namespace) -> None:
    from deepsiam.trainer.analysis.cross_thought import print_attention

    print_attention(arguments.run_folder, arguments.shards, arguments.sequence)


def _wiring(arguments: argparse.Namespace) -> None:
    from deepsiam.trainer.analysis.wiring import print_wiring

    print_wiring(arguments.recipe, arguments.overrides, arguments.out)


def parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(prog="deepsiam analyse", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    curves = commands.add_parser("curves", help="draw one logged scalar of several runs")
    curves.add_argument("runs", nargs="+", type=_named, metavar="NAME=RUN")
    curves.add_argument("--tag", required=True, help="tag of the scalar, such as loss/decoder")
    curves.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    curves.set_defaults(run=_curves)

    cosine = commands.add_parser("cosine", help="draw how similar SEED's decoder states are to [CLS], by position")
    cosine.add_argument("runs", nargs="+", type=_named, metavar="NAME=RUN")
    cosine.add_argument("--shards", type=Path, required=True, metavar="DIR", help="held-out shards")
    cosine.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    cosine.set_defaults(run=_cosine)

    learned = commands.add_parser("learning", help="draw how well fine-tuned models rank, over steps or labels")
    learned.add_argument(
        "runs", nargs="+", type=_named, metavar="NAME=RUN", help="runs with the same name form one curve"
    )
    learned.add_argument("--collection", type=Path, required=True, help="the collection to rank")
    learned.add_argument("--split", required=True, help="split with the queries")
    learned.add_argument("--over", choices=("steps", "labels"), required=True, help="the horizontal axis")
    learned.add_argument("--metric", default="mrr@10", metavar="NAME@K", help="mrr, ndcg, recall or map (mrr@10)")
    learned.add_argument("--bm25", action="store_true", help="also draw BM25, as a horizontal line")
    learned.add_argument(
        "--out", type=Path, required=True, metavar="FILE.png", help="the figure; its numbers are kept in FILE.json"
    )
    learned.set_defaults(run=_learning)

    attention = commands.add_parser(
        "attention", help="print which sequences a masked sequence of Cross-Thought attends to"
    )
    attention.add_argument("run_folder", type=Path, metavar="RUN")
    attention.add_argument("--shards", type=Path, required=True, metavar="DIR", help="held-out shards")
    attention.add_argument(
        "--sequence",
        type=int,
        metavar="N",
        help="number of the sequence (default: the one whose attention is least even)",
    )
    attention.set_defaults(run=_attention)

    wiring_ = commands.add_parser("wiring", help="draw what each target of a method's losses depends on")
    wiring_.add_argument("recipe", type=Path, metavar="RECIPE")
    wiring_.add_argument(
        "overrides", nargs="*", metavar="key=value", help="such as method.max_tokens=16, for a small figure"
    )
    wiring_.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    wiring_.set_defaults(run=_wiring)
    return parser


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=RUN")
    return name, Path(path)


if __name__ == "__main__":
    main()
