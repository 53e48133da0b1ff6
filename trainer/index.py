"""Make an index of a collection's documents, which `trainer.search` searches.

python -m trainer.index runs/mine --collection data/mine --out indexes/mine
python -m trainer.index bm25 --collection data/mine --out indexes/bm25
deepspeed --hostfile hostfile --module trainer.index runs/mine --collection data/mine --out indexes/mine
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.choices import APPROXIMATIONS, DIMENSIONS_HELP, DTYPES, PRECISION_HELP, PRECISIONS
from deepsiam.trainer.training.run.arguments import RanksParser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_args(argv)
    with exit_on_input_error("trainer.index"):
        from deepsiam.trainer.ranking.indexes.build import build_index

        build_index(arguments)


def parser() -> RanksParser:
    """Return the parser of the command."""
    parser = RanksParser(
        prog="deepsiam index",
        description="Make an index of a collection's documents, which `deepsiam search` searches.",
        example="deepsiam index runs/mine --collection data/mine --out indexes/mine",
        page="docs/search.md",
    )
    parser.add_argument("system", help="a fine-tuning run, or a sentence-transformers folder; bm25: index words")
    parser.add_argument("--collection", type=Path, required=True, help="the collection, as `deepsiam prepare` made")
    parser.add_argument("--out", type=Path, required=True, help="folder of the index")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="of the stored numbers (float32; float16 for several vectors); residual: in bits; int8, binary: a byte or "
        "a bit of each number to search by, and float16 to score what is found",
    )
    parser.add_argument("--dimensions", type=positive, metavar="N", help=DIMENSIONS_HELP)
    for side in ("query", "document"):
        description = f"before every {side}, in place of the model's own"
        parser.add_argument(f"--{side}-prompt", metavar="TEXT", help=description)
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument("--approximate", choices=APPROXIMATIONS, help="also prepare approximate search")
    return parser


if __name__ == "__main__":
    main()
