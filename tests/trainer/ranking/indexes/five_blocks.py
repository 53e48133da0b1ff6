"""Make indexes of five blocks and search them, in this process or on real ranks, which write blocks each."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.indexes import centroids
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.indexes.registry import KINDS
from deepsiam.trainer.ranking.indexes.sparse import TermWriter
from deepsiam.trainer.ranking.indexes.writer import OneVector, SeveralVectors
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.search import packed
from deepsiam.trainer.ranking.retrieval.shared import merge
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.run.command import skip_interpreter_shutdown


@contextmanager
def small_blocks() -> Iterator[pytest.MonkeyPatch]:
    """Let a block have 20 of the 90 different texts."""
    with pytest.MonkeyPatch.context() as patched:
        for writer in (OneVector, SeveralVectors, TermWriter):
            patched.setattr(writer, "BLOCK", 20)
        yield patched


def build(kind: str, ranker: Ranker, folder: Path, dtype: str | None = None, rank: int = 0, ranks: int = 1) -> Index:
    """Make an index, of five blocks within `small_blocks`, with its centroids."""
    index = KINDS[kind].build(ranker, folder, rank, ranks, dtype=dtype)
    if centroids.NAME in KINDS[kind].APPROXIMATIONS:
        index.prepare(centroids.NAME, rank, ranks)
    return index


def queries(collection: Collection) -> list[str]:
    """Some queries of a collection, and an empty one."""
    return [*(collection.queries.text(i) for i in range(0, 120, 9)), ""]


def found(index: Index, k: int, rank: int = 0, ranks: int = 1) -> np.ndarray | None:
    """The k best documents of each query and their scores, in one array, on rank 0; each rank searches its blocks."""
    best = merge(index.search(queries(index.collection), k, None, rank, ranks), k, rank, ranks)
    return None if best is None else packed(best, k)


def main() -> None:
    """Make and search {name: [kind, run, dtype]} of a JSON file, with the name's folder and what it finds beside it."""
    directory, file = map(Path, sys.argv[-2:])
    collection = Collection.open(directory)
    world = World.from_environment()
    with skip_interpreter_shutdown(), small_blocks():
        join(world)
        for name, (kind, run, dtype) in json.loads(file.read_text()).items():
            index = build(kind, open_ranker(run, collection), file.parent / name, dtype, world.rank, world.size)
            best = found(index, 9, world.rank, world.size)
            told = index.measure(world.rank, world.size)
            if best is not None:
                np.save(file.parent / f"{name}.npy", best)
                (file.parent / f"{name}.txt").write_text(str(told))


if __name__ == "__main__":
    main()
