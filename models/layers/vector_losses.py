"""Losses of a student's vectors and a teacher's: for each text by itself, fp32 [B], both vectors [B, W]."""

from collections.abc import Callable, Mapping

import torch.nn.functional as F
from torch import Tensor


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return 1 - cos(student, teacher)."""
    return 1 - F.cosine_similarity(student, teacher)


def squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared difference, the mean over the numbers of a vector."""
    return (student - teacher).square().mean(dim=1)


VECTOR_LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "vectors": cosine_distance,
    "vectors_mse": squared_error,
}
BATCH_KL = "batch_kl"  # compares the score matrices of both: see DualEncoder.losses
LEARN_VECTORS = (*VECTOR_LOSSES, BATCH_KL)
