"""Write a model's vectors of texts, which a student learns: `data.teacher` of a recipe names the folder.

python -m trainer.embed MODEL data/mine --out data/mine-vectors
python -m trainer.embed MODEL data/text/shards data/held_out/shards --passage-tokens 128 --out data/text-vectors
deepspeed --hostfile hostfile --module trainer.embed MODEL data/text/shards --out data/text-vectors
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.choices import PRECISION_HELP, PRECISIONS
from deepsiam.trainer.training.run.arguments import RanksParser

PASSAGE_TOKENS = 256


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parser().parse_args(argv)
    with exit_on_input_error("trainer.embed"):
        from deepsiam.trainer.ranking.embedding import embed

        embed(arguments)


def parser() -> RanksParser:
    """Return the parser of the command."""
    parser = RanksParser(
        prog="deepsiam embed",
        description="Write a model's vectors of texts, which a student learns.",
        example="deepsiam embed MODEL data/text/shards --out data/text-vectors",
        page="docs/pretraining/distil.md",
    )
    parser.add_argument("teacher", help="a run or a sentence-transformers folder of one vector per text")
    parser.add_argument("texts", nargs="+", type=Path, help="collections and folders of shards, of one tokenizer")
    parser.add_argument("--out", type=Path, required=True, help="folder of the vectors")
    parser.add_argument(
        "--passage-tokens",
        type=positive,
        default=PASSAGE_TOKENS,
        metavar="N",
        help=f"of a passage of shards' documents ({PASSAGE_TOKENS}): method.passage_tokens of the recipe",
    )
    parser.add_argument("--dimensions", type=positive, metavar="N", help="keep the first N numbers of each vector")
    for side in ("query", "document"):
        description = f"before every {side}, in place of the model's own"
        parser.add_argument(f"--{side}-prompt", metavar="TEXT", help=description)
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    return parser


if __name__ == "__main__":
    main()
