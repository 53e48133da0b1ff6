"""Make an index of a collection's documents, which `trainer.search` searches.

python -m trainer.index runs/mine --collection data/mine --out indexes/mine
python -m trainer.index bm25 --collection data/mine --out indexes/bm25
deepspeed --hostfile hostfile --module trainer.index runs/mine --collection data/mine --out indexes/mine
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, as_input_error, exit_on_input_error
from deepsiam.data_prep.common.parser import Parser
from deepsiam.trainer.ranking.indexes import approximate
from deepsiam.trainer.ranking.indexes.folder import MANIFEST
from deepsiam.trainer.ranking.indexes.index import require_choice
from deepsiam.trainer.ranking.indexes.registry import APPROXIMATIONS, DTYPES, kind_of
from deepsiam.trainer.ranking.ranker import DIMENSIONS_HELP, PRECISION_HELP, PRECISIONS, PROMPTS, ModelRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first
from deepsiam.trainer.training.engine.world import failed_rank_exits_first, joined, rank_0_speaks, say


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    with exit_on_input_error("trainer.index"), failed_rank_exits_first():
        world = joined()
        with rank_0_first(world.rank, world.size):
            collection = Collection.open(chosen.collection)
            ranker = open_ranker(chosen.system, collection, chosen.precision)
            kind = kind_of(ranker)
            prompts = {name: text for name in PROMPTS if (text := getattr(chosen, name)) is not None}
            if not isinstance(ranker, ModelRanker):
                for name in (*prompts, *(["precision"] if chosen.precision else [])):
                    option = f"--{name.replace('_', '-')}"
                    raise InputError(f"{option} needs a model, and {ranker.title} is none: leave it out")
            with as_input_error(chosen.system):
                ranker = ranker.with_options(prompts)
            if chosen.dimensions:
                ranker = ranker.cut(chosen.dimensions)
            what = f"the index of {chosen.system}"
            require_choice("--dtype", chosen.dtype, kind.WRITERS, what)
            require_choice("--approximate", chosen.approximate, kind.APPROXIMATIONS, what)
            if chosen.approximate in approximate.KINDS:
                approximate.require_faiss()
        with rank_0_speaks(world.rank):
            if ranker.note:
                say(ranker.note)
            complete = (chosen.out / MANIFEST).is_file()
            index = kind.build(ranker, chosen.out, world.rank, world.size, dtype=chosen.dtype)
            say(f"{chosen.out}: {'complete already: ' if complete else ''}{index}")
            if told := index.measure(world.rank, world.size):
                print(f"{chosen.out}: {told}", flush=True)
            if chosen.approximate:
                index.prepare(chosen.approximate, world.rank, world.size)
                say(f"{chosen.out}: ready for trainer.search --approximate {chosen.approximate}")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="trainer.index",
        description="Make an index of a collection's documents, which trainer.search searches.",
        example="python -m trainer.index runs/mine --collection data/mine --out indexes/mine",
        page="docs/search.md",
    )
    parser.add_argument("system", help="a fine-tuning run, or a sentence-transformers folder; bm25: index words")
    parser.add_argument("--collection", type=Path, required=True, help="the collection, as `data_prep collection` made")
    parser.add_argument("--out", type=Path, required=True, help="folder of the index")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="of the stored numbers (float32; float16 for several vectors); residual: in bits; int8, binary: a byte or "
        "a bit of each number to search by, and float16 to score what is found",
    )
    parser.add_argument("--dimensions", type=positive, metavar="N", help=DIMENSIONS_HELP)
    for name in PROMPTS:
        option, texts = f"--{name.replace('_', '-')}", name.removesuffix("_prompt")
        parser.add_argument(option, metavar="TEXT", help=f"before every {texts}, in place of the model's own")
    parser.add_argument("--precision", choices=PRECISIONS, help=PRECISION_HELP)
    parser.add_argument("--approximate", choices=APPROXIMATIONS, help="also prepare approximate search")
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
