"""K-means (Lloyd, 1982), repeatable to the bit: means are summed in fp64, in the order of the vectors."""

from __future__ import annotations

import numpy as np
import torch

from deepsiam.data_prep.common.progress import meter
from deepsiam.trainer.training.engine.device import this_device

ROUNDS, TRAINED_ON = 4, 32  # rounds, and training vectors for each centroid
PRODUCTS = 2**24  # inner products of vectors and centroids, held at once: 64 MiB in fp32


def train(vectors: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Compute centroids, fp32 [number, H], of vectors fp32 [n, H], from a random start."""
    centroids = vectors[np.sort(rng.permutation(len(vectors))[:number])]
    with meter("centroids", "rounds", ROUNDS) as report:
        for round_number in range(ROUNDS):
            centroids = means(vectors, nearest(vectors, centroids), centroids)
            report(round_number + 1, "")
    return centroids


def means(vectors: np.ndarray, belongs: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the mean of each centroid's vectors, fp32 [C, H]; a centroid without vectors stays where it is."""
    order = np.argsort(belongs, kind="stable")
    present, starts, counts = np.unique(belongs[order], return_index=True, return_counts=True)
    moved = centroids.copy()
    moved[present] = np.add.reduceat(vectors[order], starts, dtype=np.float64) / counts[:, None]
    return moved


def nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the number of the centroid nearest to each vector, by Euclidean distance, int64 [n]."""
    columns = torch.from_numpy(centroids).to(this_device()).T  # [H, C]
    half_squares = columns.square().sum(dim=0) / -2
    belongs = np.empty(len(vectors), np.int64)
    step = max(1, PRODUCTS // columns.shape[1])
    for start in range(0, len(vectors), step):
        rows = torch.from_numpy(vectors[start : start + step].astype(np.float32)).to(columns.device)
        belongs[start : start + step] = torch.addmm(half_squares, rows, columns).argmax(dim=1).cpu().numpy()
    return belongs
