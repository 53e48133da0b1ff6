"""Mine hard negatives, show them, have a teacher score them, expand documents, or keep the pairs that a model finds.

python -m trainer.mine --collection C --split train --system bm25 --out C-bm25
python -m trainer.mine --collection C --split train --system bm25 --system runs/first --depth 200 --out C-mined
python -m trainer.mine --collection C --split train --system 'bm25 > 100 runs/cross_encoder' --margin 5% --out C-safe
python -m trainer.mine --collection C-mined --split train --score runs/cross_encoder --out C-scored
python -m trainer.mine --collection C-asked --split train --score Qwen3-4B --recipe yes_no.yaml --out C-scored
python -m trainer.mine --collection C-mined --split train --explain 20 --out C-mined.html
python -m trainer.mine --collection C --expand runs/tilde --terms 200 --out C-expanded
python -m trainer.mine --pairs P/shards --consistent 2 --pool 1000000 --system runs/pairs --out P-consistent
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.common.argument_types import positive, seed
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.trainer.ranking.choices import PRECISION_HELP, PRECISIONS
from deepsiam.trainer.training.recipe.margin import read_margin
from deepsiam.trainer.training.run.arguments import RanksParser

DEPTH, TERMS = 100, 200
OF_A_SPLIT = ("system", "score", "explain")
JOBS = {  # and the options of each
    "system": {"split", "precision", "depth", "margin", "skip", "per_document", "consistent"},
    "score": {"split", "precision", "recipe"},
    "explain": {"split"},
    "expand": {"terms", "precision"},
    "pairs": {"consistent", "pool", "seed", "precision"},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _arguments(argv)
    with exit_on_input_error("trainer.mine"):
        if arguments.explain:
            from deepsiam.trainer.analysis.negatives_page import write_page

            write_page(arguments.collection, arguments.split, arguments.explain, arguments.out)
        else:
            from deepsiam.trainer.ranking.derivations import derive_by

            derive_by(arguments)


def parser() -> RanksParser:
    """Return the parser of the command."""
    parser = RanksParser(
        prog="deepsiam mine",
        description="Mine hard negatives, show them, have a teacher score candidates, expand documents, or keep pairs.",
        example="deepsiam mine --collection data/mine --split train --system bm25 --out data/mine-bm25",
        page="docs/negatives.md",
    )
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--collection", type=Path, help="the collection, as `deepsiam prepare` made")
    data.add_argument("--pairs", type=Path, metavar="SHARDS", help="instead, shards of pairs, to filter")
    parser.add_argument("--split", help="whose groups get other candidates, or are shown")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--system",
        action="append",
        metavar="SYSTEM",
        help="mine with bm25, a run or a sentence-transformers folder, or with 'A > 100 B', the first 100 of A "
        "re-ranked by B; repeated, what they find is merged",
    )
    how.add_argument(
        "--score",
        type=Path,
        metavar="RUN",
        help="score the candidates with this teacher, a run or a cross-encoder's folder; mine none",
    )
    how.add_argument(
        "--expand", type=Path, metavar="RUN", help="add to each document its likeliest terms, by this TILDE run"
    )
    how.add_argument(
        "--explain",
        type=positive,
        metavar="N",
        help="show N queries with their negatives on a page, to find false ones",
    )
    parser.add_argument(
        "--recipe", type=Path, metavar="FILE", help="the prompt of a --score by a language model's folder: its method"
    )
    parser.add_argument("--terms", type=positive, metavar="N", help=f"how many to add to each document ({TERMS})")
    parser.add_argument("--depth", type=positive, metavar="K", help=f"documents to look at for each query ({DEPTH})")
    parser.add_argument(
        "--skip", type=positive, metavar="N", help="leave out the first N of these, which are likelier to be relevant"
    )
    parser.add_argument(
        "--margin",
        type=_margin,
        help="leave out documents that score less than this below the best relevant one: 0.1, or 5%% of its score",
    )
    parser.add_argument(
        "--per-document", type=positive, metavar="N", help="let no document be the negative of more than N queries"
    )
    parser.add_argument(
        "--consistent", type=positive, metavar="K", help="keep a query if its document is among the first K"
    )
    parser.add_argument("--pool", type=positive, metavar="N", help="documents drawn for the pool of --consistent (all)")
    parser.add_argument("--seed", type=seed, help="of the draw of the pool (1)")
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument("--out", type=Path, required=True, help="folder of what is made, or file of the page")
    return parser


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser()
    arguments = command.parse_args(argv)
    job = "pairs" if arguments.pairs else next(name for name in JOBS if getattr(arguments, name))
    for name in sorted(set().union(*JOBS.values()) - JOBS[job]):
        if getattr(arguments, name) is not None:
            command.error(f"--{name.replace('_', '-')} does not go with --{job}: leave it out")
    arguments.seed = 1 if arguments.seed is None else arguments.seed
    if job == "pairs" and not (arguments.system and len(arguments.system) == 1 and arguments.consistent):
        command.error("--pairs needs --consistent K and one --system, a run or a sentence-transformers folder")
    if job in OF_A_SPLIT and not arguments.split:
        command.error("--split is missing")
    arguments.depth, arguments.skip, arguments.terms = (
        arguments.depth or DEPTH,
        arguments.skip or 0,
        arguments.terms or TERMS,
    )
    if arguments.skip >= arguments.depth:
        command.error(f"--skip {arguments.skip} leaves nothing of the first {arguments.depth}: raise --depth")
    if job == "system" and (arguments.consistent or 0) > arguments.depth:
        command.error(f"--consistent {arguments.consistent} is deeper than --depth {arguments.depth}: raise it")
    return arguments


def _margin(text: str) -> float | str:
    """A number, or a share of a score."""
    try:
        return read_margin(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    main()
