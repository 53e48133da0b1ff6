"""Approximate search by faiss, for corpora where exact search is too slow; the texts found are scored exactly.

ivf    vectors in about 4 * sqrt(N) lists; a sixteenth of the lists is searched
pq     the same, with one byte for every four numbers of a vector (product quantisation): a sixteenth of the memory
hnsw   a graph of neighbours (Malkov and Yashunin, 2018): the fastest search, the slowest to make, more memory

The kinds differ in what they find; scores and order always come from the inner products of the stored vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import whole_file
from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.retrieval.search import Ranked, rescored

LISTS_LOOKED_AT = 16  # one in this many lists is searched
TRAINED_ON = 256  # about this many vectors for each list, as faiss advises
LINKS, WIDTH_OF_MAKING, WIDTH_OF_SEARCH = 32, 200, 256  # of hnsw
MORE, LEAST = 10, 200  # candidates to score exactly: MORE times k, and at least LEAST
BATCH = 65536  # vectors added at once


Vectors = Blocks | np.ndarray  # of the distinct texts, fp32 or fp16 [U, H]


def ivf(width: int, texts: int) -> Any:
    """Make an empty index of lists of whole vectors."""
    import faiss

    lists = _lists(texts)
    return faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, lists, faiss.METRIC_INNER_PRODUCT)


def pq(width: int, texts: int) -> Any:
    """Make an empty index of lists of quantised vectors."""
    import faiss

    if width % 4 or texts < 256:
        raise InputError("--approximate pq: needs a width that 4 divides, and 256 different texts: choose ivf or hnsw")
    lists = _lists(texts)
    return faiss.IndexIVFPQ(faiss.IndexFlatIP(width), width, lists, width // 4, 8, faiss.METRIC_INNER_PRODUCT)


def hnsw(width: int, texts: int) -> Any:
    """Make an empty index with a graph of neighbours."""
    import faiss

    made = faiss.IndexHNSWFlat(width, LINKS, faiss.METRIC_INNER_PRODUCT)
    made.hnsw.efConstruction, made.hnsw.efSearch = WIDTH_OF_MAKING, WIDTH_OF_SEARCH
    return made


KINDS: dict[str, Callable[[int, int], Any]] = {"ivf": ivf, "pq": pq, "hnsw": hnsw}


def _lists(texts: int) -> int:
    return max(1, min(round(4 * texts**0.5), texts // 40))


def file_of(directory: Path, kind: str) -> Path:
    """Return the path of a kind's approximate index in an index folder."""
    return directory / f"approximate-{kind}.faiss"


def require_faiss() -> None:
    """Raise InputError, with how to install faiss, where it is missing."""
    require("faiss", "faiss", what="--approximate")


def make(kind: str, vectors: Vectors, path: Path) -> None:
    """Make an index and write it to a file.

    Raises:
        InputError: faiss is not installed, the vectors do not suit the kind, or the file cannot be written.
    """
    require_faiss()
    import faiss

    texts, width = len(vectors), vectors[:1].shape[1]
    made = KINDS[kind](width, texts)
    if not made.is_trained:  # it has lists
        made.nprobe = -(-made.nlist // LISTS_LOOKED_AT)
        sample = np.sort(np.random.default_rng(0).permutation(texts)[: TRAINED_ON * made.nlist])
        made.train(vectors[sample].astype(np.float32))
    with meter("approximate index", "texts", texts) as report:
        for start in range(0, texts, BATCH):
            made.add(np.ascontiguousarray(vectors[start : start + BATCH], np.float32))
            report(min(start + BATCH, texts), "")
    with whole_file(path) as file:
        faiss.write_index(made, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


def load(path: Path, vectors: Vectors) -> Any:
    """Read an index that `make` has written.

    Raises:
        InputError: faiss is not installed, or the file is missing, damaged or made of other vectors.
    """
    require_faiss()
    import faiss

    if not path.is_file():
        raise InputError(f"{path}: no such file; trainer.index --approximate makes it")
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        raise InputError(f"{path}: damaged ({str(error).splitlines()[-1]}); remove it and make it again") from error
    if (index.ntotal, index.d) != (len(vectors), vectors[:1].shape[1]):
        raise InputError(f"{path}: was made from other vectors; remove it and make it again")
    return index


def search(index: Any, queries: np.ndarray, vectors: Vectors, k: int) -> list[Ranked]:
    """Find k texts, or fewer, for each query fp32 [Q, H]; ties are in the order of the vectors.

    Args:
        index: as `load` returns it.
        queries: of the vectors' width.
        vectors: those that the index was made of.
        k: texts to find.
    """
    found = index.search(queries, min(len(vectors), max(MORE * k, LEAST)))[1]
    ranked = []
    for query, row in zip(queries, found, strict=True):
        positions = np.sort(row[row >= 0]).astype(np.int64)  # faiss pads with -1 where it finds fewer
        ranked.append(rescored(query, vectors, positions, k))
    return ranked
