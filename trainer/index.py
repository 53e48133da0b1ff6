"""Encode a collection's documents into an index, which `trainer.search` searches.

python -m trainer.index runs/mine --collection data/mine --out indexes/mine
deepspeed --hostfile hostfile --module trainer.index runs/mine --collection data/mine --out indexes/mine
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from data_prep.collections.collection import Collection
from data_prep.common.errors import exit_on_input_error
from trainer.checkpoints.published import load_any
from trainer.engine.world import World, join
from trainer.retrieval.approximate import KINDS, file_of, make, require_faiss
from trainer.retrieval.build_index import build
from trainer.retrieval.index import DTYPES, MANIFEST


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _arguments(argv)
    world = World.from_environment()
    with exit_on_input_error("trainer.index"):
        if world.size > 1:
            join(world)
        if chosen.approximate:
            require_faiss()
        collection, trained = Collection.open(chosen.collection), load_any(chosen.run)
        complete = (chosen.out / MANIFEST).is_file()
        made = build(trained, collection, chosen.out, world.rank, world.size, dtype=chosen.dtype)
        if world.rank == 0:
            print(f"{made.directory}: {'complete already: ' if complete else ''}{made}", flush=True)
            if chosen.approximate and not (file := file_of(chosen.out, chosen.approximate)).is_file():
                make(chosen.approximate, made.vectors, file)
                print(f"{file}: for trainer.search --approximate {chosen.approximate}", flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer.index", description="Encode a collection's documents into an index.")
    parser.add_argument("run", type=Path, help="a fine-tuning run, or a sentence-transformers folder")
    parser.add_argument("--collection", type=Path, required=True, help="the collection, as `data_prep collection` made")
    parser.add_argument("--out", type=Path, required=True, help="folder of the index")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="of the stored numbers; float16 halves them")
    parser.add_argument("--approximate", choices=KINDS, help="also prepare approximate search by faiss")
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # from the launcher; the environment has it too
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
