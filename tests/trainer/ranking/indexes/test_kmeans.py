"""K-means: centroids are means, and vectors belong to the nearest."""

import numpy as np
import pytest

from deepsiam.trainer.ranking.indexes import centroids, kmeans
from deepsiam.trainer.ranking.indexes.blocks import Blocks


def test_the_centroids_are_the_means_of_the_vectors_near_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((10, 6)).astype(np.float32) * 5
    vectors = middles[rng.integers(10, size=3000)] + rng.standard_normal((3000, 6)).astype(np.float32) * 0.1
    of_centroids = centroids.train(Blocks([vectors[:700], vectors[700:]]))
    assert of_centroids.shape == (round(8 * 3000**0.5), 6)
    distances = np.linalg.norm(vectors[:, None] - of_centroids, axis=2)
    for products in (kmeans.PRODUCTS, 1):
        monkeypatch.setattr(kmeans, "PRODUCTS", products)
        belongs = kmeans.nearest(vectors[:50], of_centroids)
        np.testing.assert_allclose(distances[np.arange(50), belongs], distances[:50].min(axis=1), atol=1e-3)
    assert distances.min(axis=1).mean() < 0.25  # within each of the ten clusters, about 0.24 from the middle
    before = np.array([[0.0, 0.0], [10.0, 0.0], [99.0, 0.0]], np.float32)
    points = np.array([[1, 1], [3, 1], [9, 4], [2, 1]], np.float32)
    means = kmeans.means(points, kmeans.nearest(points, before), before)
    np.testing.assert_array_equal(means, [[2, 1], [9, 4], [99, 0]])
