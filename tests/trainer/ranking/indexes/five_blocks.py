"""Make indexes of five blocks and search them, in this process or on real ranks, which write blocks each."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.indexes import centroids, residual, small_vectors
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.indexes.registry import KINDS
from deepsiam.trainer.ranking.indexes.sparse import TermWriter
from deepsiam.trainer.ranking.indexes.writer import OneVector, SeveralVectors
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.search import Ranked, packed
from deepsiam.trainer.ranking.retrieval.shared import merge
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.run.command import skip_interpreter_shutdown

CODED = {"int8": "dense", "binary": "dense", "residual2": "multi_vector"}  # dtypes with files of their own
NAMES = (*KINDS, *CODED)


@contextmanager
def small_blocks() -> Iterator[None]:
    """Let a block have 20 of the 90 different texts, and samples some of them."""
    with pytest.MonkeyPatch.context() as patched:
        for writer in (OneVector, SeveralVectors, TermWriter):
            patched.setattr(writer, "BLOCK", 20)
        patched.setattr(residual, "TRAINED_ON", 2)
        patched.setattr(small_vectors, "SAMPLE", 30)
        yield


def build(kind: str, ranker: Ranker, folder: Path, dtype: str | None = None, rank: int = 0, ranks: int = 1) -> Index:
    """Make an index, of five blocks within `small_blocks`, with its centroids."""
    index = KINDS[kind].build(ranker, folder, rank, ranks, dtype=dtype)
    if centroids.NAME in KINDS[kind].APPROXIMATIONS:
        index.prepare(centroids.NAME, rank, ranks)
    return index


def build_named(name: str, rankers: Mapping[str, Ranker], folder: Path, rank: int = 0, ranks: int = 1) -> Index:
    """Make an index of a kind, or of a coded dtype."""
    kind, dtype = (CODED[name], name) if name in CODED else (name, None)
    return build(kind, rankers[kind], folder, dtype, rank, ranks)


def queries(collection: Collection) -> list[str]:
    """Some queries of a collection, and an empty one."""
    return [*(collection.queries.text(i) for i in range(0, 120, 9)), ""]


def found(index: Index, k: int, rank: int = 0, ranks: int = 1) -> np.ndarray | None:
    """The k best documents of each query and their scores, in one array, on rank 0; each rank searches its blocks."""
    best = merge(index.search_share(queries(index.collection), k, None, rank, ranks), k, rank, ranks)
    return None if best is None else packed(best, k)


def recall(exact: Sequence[Ranked], found: Sequence[Ranked]) -> float:
    """The mean share of exact search's documents that are found."""
    return float(np.mean([np.isin(a.documents, b.documents).mean() for a, b in zip(exact, found, strict=True)]))


def expect_ties_in_order(ranked: Ranked) -> None:
    """Expect documents of equal scores in the order of the collection."""
    assert (np.diff(ranked.scores) <= 0).all()
    assert (np.diff(ranked.documents)[np.diff(ranked.scores) == 0] > 0).all()


def tree(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a folder, by their names."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
