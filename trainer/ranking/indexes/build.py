"""Build an index of a collection, on all ranks; what `trainer.index` does."""

from __future__ import annotations

import argparse

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.trainer.ranking.indexes import approximate
from deepsiam.trainer.ranking.indexes.folder import MANIFEST
from deepsiam.trainer.ranking.indexes.index import require_choice
from deepsiam.trainer.ranking.indexes.registry import kind_of
from deepsiam.trainer.ranking.ranker import PROMPTS, ModelRanker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first
from deepsiam.trainer.training.engine.world import failed_rank_exits_first, joined, rank_0_speaks, say


def build_index(arguments: argparse.Namespace) -> None:
    """Build the index that the arguments of `trainer.index` describe, or go on with it; print what it is."""
    with failed_rank_exits_first():
        world = joined()
        with rank_0_first(world.rank, world.size):
            collection = Collection.open(arguments.collection)
            ranker = open_ranker(arguments.system, collection, arguments.precision)
            kind = kind_of(ranker)
            prompts = {name: text for name in PROMPTS if (text := getattr(arguments, name)) is not None}
            if not isinstance(ranker, ModelRanker):
                for name in (*prompts, *(["precision"] if arguments.precision else [])):
                    option = f"--{name.replace('_', '-')}"
                    raise InputError(f"{option} needs a model, and {ranker.title} is none: leave it out")
            with as_input_error(arguments.system):
                ranker = ranker.with_options(prompts)
            if arguments.dimensions:
                ranker = ranker.cut(arguments.dimensions)
            index_name = f"the index of {arguments.system}"
            require_choice("--dtype", arguments.dtype, kind.WRITERS, index_name)
            require_choice("--approximate", arguments.approximate, kind.APPROXIMATIONS, index_name)
            if arguments.approximate in approximate.KINDS:
                approximate.require_faiss()
        with rank_0_speaks(world.rank):
            if ranker.note:
                say(ranker.note)
            is_complete = (arguments.out / MANIFEST).is_file()
            index = kind.build(ranker, arguments.out, world.rank, world.size, dtype=arguments.dtype)
            say(f"{arguments.out}: {'complete already: ' if is_complete else ''}{index}")
            if told := index.measure(world.rank, world.size):
                print(f"{arguments.out}: {told}", flush=True)
            if arguments.approximate:
                index.prepare(arguments.approximate, world.rank, world.size)
                say(f"{arguments.out}: ready for trainer.search --approximate {arguments.approximate}")
