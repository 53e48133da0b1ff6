"""Approximate search by faiss, for corpora where exact search is too slow; the texts found are scored exactly.

ivf    vectors in about 4 * sqrt(N) lists; a sixteenth of the lists is searched
pq     the same, with one byte for every four numbers of a vector (product quantisation): a sixteenth of the memory
hnsw   a graph of neighbours (Malkov and Yashunin, 2018): the fastest search, the slowest to make, more memory

The kinds differ in what they find; scores and order always come from the inner products of the stored vectors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import whole_file
from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.retrieval.search import Ranked, rescored

KINDS = {"ivf": "IVF{lists},Flat", "pq": "IVF{lists},PQ{parts}x8np", "hnsw": "HNSW32"}  # as faiss's factory reads them
LISTS_LOOKED_AT = 16  # one in this many lists is searched
TRAINED_ON = 256  # about this many vectors for each list, as faiss advises
WIDTH_OF_MAKING, WIDTH_OF_SEARCH = 200, 256  # of hnsw
CANDIDATE_FACTOR, MIN_CANDIDATES = 10, 200  # candidates to score exactly: a multiple of k, and at least so many
BATCH = 65536  # vectors added at once

Vectors = Blocks | np.ndarray  # of the distinct texts, fp32 or fp16 [U, H]


def index_file(directory: Path, kind: str) -> Path:
    """Return the path of a kind's approximate index in an index folder."""
    return directory / f"approximate-{kind}.faiss"


def require_faiss() -> None:
    """Raise InputError, with how to install faiss, where it is missing."""
    require("faiss", "faiss", feature="--approximate")


def make(kind: str, vectors: Vectors, path: Path) -> None:
    """Make an index and write it to a file.

    Raises:
        InputError: faiss is not installed, the vectors do not suit the kind, or the file cannot be written.
    """
    require_faiss()
    import faiss

    texts, width = len(vectors), vectors[:1].shape[1]
    if kind == "pq" and (width % 4 or texts < 256):
        raise InputError("--approximate pq: needs a width that 4 divides, and 256 different texts: choose ivf or hnsw")
    lists = max(1, min(round(4 * texts**0.5), texts // 40))
    index: Any = faiss.index_factory(
        width, KINDS[kind].format(lists=lists, parts=width // 4), faiss.METRIC_INNER_PRODUCT
    )
    if kind == "hnsw":
        index.hnsw.efConstruction, index.hnsw.efSearch = WIDTH_OF_MAKING, WIDTH_OF_SEARCH
    else:
        index.nprobe = -(-lists // LISTS_LOOKED_AT)
        sample = np.sort(np.random.default_rng(0).permutation(texts)[: TRAINED_ON * lists])
        index.train(vectors[sample].astype(np.float32))
    with meter("approximate index", "texts", texts) as report:
        for start in range(0, texts, BATCH):
            index.add(np.ascontiguousarray(vectors[start : start + BATCH], np.float32))
            report(min(start + BATCH, texts), "")
    with whole_file(path) as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


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
    """Find k of the vectors of an index, or fewer, for each query fp32 [Q, H]; ties are in their order."""
    candidates = index.search(queries, min(len(vectors), max(CANDIDATE_FACTOR * k, MIN_CANDIDATES)))[1]
    ranked = []
    for query, row in zip(queries, candidates, strict=True):
        positions = np.sort(row[row >= 0]).astype(np.int64)  # faiss pads with -1 where it finds fewer
        ranked.append(rescored(query, vectors, positions, k))
    return ranked
