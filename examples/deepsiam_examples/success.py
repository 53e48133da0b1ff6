"""A metric: success@K, the share of queries that have a relevant document among the first K."""

import numpy as np

from deepsiam import register
from deepsiam.trainer.ranking.evaluation.metrics import RankingMetric


def success(grades: np.ndarray, judged: np.ndarray) -> float:
    """Return 1 if a document among the first is relevant, else 0."""
    return float((grades > 0).any())


register("metric", "success", RankingMetric("Success", success))
