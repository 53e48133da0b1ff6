"""Search the shares of several ranks in one process."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.retrieval.search import Ranked, merged, packed


def search_shares(
    index: Index, queries: Sequence[str], k: int, ranks: int, approximation: str | None = None
) -> list[list[Ranked]]:
    """Return what each rank finds; check that, merged, it equals what one rank alone finds, to the last bit."""
    shares = [index.search(queries, k, approximation, rank, ranks) for rank in range(ranks)]
    together = merged(np.concatenate([packed(found, k) for found in shares], axis=1), k)
    alone = index.search(queries, k, approximation)
    assert len(together) == len(alone) == len(queries)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.documents, other.documents)
        np.testing.assert_array_equal(one.scores, other.scores)
    return shares


def tree(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a folder, by their names."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
