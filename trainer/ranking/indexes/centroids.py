"""Candidates for a query of several vectors: the texts with a vector near one of the query's vectors.

Centroids are computed from the stored vectors by k-means, or are those of their codec (residual.py), and each stored
vector belongs to its nearest centroid. For each of its own vectors a query selects the nearest centroids, as in PLAID's
first stage (Santhanam et al., 2022). All texts with a vector of a selected centroid are candidates, and are then scored
exactly.

centroids/centroids.npy   fp32 [C, H], where the vectors have no codec
centroids/NNNNNN.npy      int32 [2, P]: the distinct pairs of a centroid and a text's number in its block, sorted
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import map_array
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, save_array
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.trainer.ranking.indexes import kmeans
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.residual import BITS, FILES, Residuals
from deepsiam.trainer.ranking.retrieval.shared import wait_for

NAME = "centroids"
PROBE = 2  # centroids to select for each vector of a query


def prepare(folder: IndexFolder, vectors: Blocks | Residuals, counts: list[np.ndarray], rank: int, ranks: int) -> None:
    """Make the centroids on rank 0, and the lists of each rank's blocks, unless they exist; all ranks must call this.

    `counts` says for each block how many vectors each text has, int64 [texts of the block].
    """
    file = _file(folder)
    if rank == 0:
        make_directory(folder.directory / NAME)
        if isinstance(vectors, Blocks) and not file.is_file():
            save_array(file, train(vectors))
    wait_for(ranks)
    centroids = np.array(map_array(file, [np.float32], 2, remedy="remove it"))
    lists_to_make = [(i, path) for i, path in enumerate(_lists(folder)) if i % ranks == rank and not path.is_file()]
    progress = 0
    with meter("lists", "vectors", sum(int(counts[i].sum()) for i, _ in lists_to_make)) as report:
        for i, path in lists_to_make:
            if isinstance(vectors, Residuals):
                belongs = vectors.nearest(i)
            else:
                belongs = kmeans.nearest(vectors.arrays[i], centroids)
            pairs = np.stack([belongs, np.repeat(np.arange(len(counts[i])), counts[i])])
            save_array(path, np.unique(pairs, axis=1).astype(np.int32))
            report(progress := progress + len(belongs), "")
    wait_for(ranks)


def train(vectors: Blocks) -> np.ndarray:
    """Compute the centroids of vectors, fp32 [C, H], from a sample."""
    number = max(1, min(round(8 * len(vectors) ** 0.5), len(vectors) // 4))
    rng = keyed_rng("centroids")
    sample = np.unique(rng.integers(len(vectors), size=kmeans.TRAINED_ON * number))
    return kmeans.train(vectors[sample].astype(np.float32), number, rng)


def nearest_of_query(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the distinct centroids of largest inner product with a query's vectors fp32 [m, H], `PROBE` for each."""
    products = vectors @ centroids.T
    probe = min(PROBE, len(centroids))
    return np.unique(np.argpartition(-products, probe - 1, axis=1)[:, :probe])


def texts_of(query_centroids: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the texts of a block that have a vector of one of these centroids, int64 [n], from the block's list."""
    starts, ends = (np.searchsorted(pairs[0], query_centroids, side=side) for side in ("left", "right"))
    texts = [pairs[1, a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.unique(np.concatenate([np.empty(0, np.int64), *texts]))


def load(folder: IndexFolder, width: int, texts: list[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Read the centroids fp32 [C, H], and memory-map the list of each block, int32 [2, P], of so many `texts` each.

    Raises:
        InputError: they are missing, incomplete or damaged.
    """
    files = [_file(folder), *_lists(folder)]
    if absent_files := [file for file in files if not file.is_file()]:
        raise InputError(f"{absent_files[0]}: no such file; trainer.index --approximate {NAME} makes it")
    remedy = "remove it and make it again"
    centroids = map_array(files[0], [np.float32], 2, remedy=remedy)
    lists = [map_array(file, [np.int32], 2, remedy=remedy) for file in files[1:]]
    if centroids.shape[1] != width or not len(centroids) or any(len(pairs) != 2 for pairs in lists):
        raise InputError(f"{folder.directory / NAME}: belongs to another index; {remedy}")
    for file, pairs, number in zip(files[1:], lists, texts, strict=True):
        if pairs.size and (pairs.min() < 0 or pairs[1].max() >= number):
            raise InputError(f"{file}: damaged (it names texts that the block does not have); {remedy}")
    return np.array(centroids), lists


def _file(folder: IndexFolder) -> Path:
    return folder.directory / (FILES[0] if folder.manifest.get("dtype") in BITS else f"{NAME}/centroids.npy")


def _lists(folder: IndexFolder) -> list[Path]:
    return [folder.directory / NAME / block for block in folder.manifest["blocks"]]
