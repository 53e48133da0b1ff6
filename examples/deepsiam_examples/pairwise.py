"""A loss: each negative should score below its query's positive (RankNet, Burges et al., 2005)."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from deepsiam import register
from deepsiam.models.layers.ranking_losses import RankingLoss


def pairwise(scores: Tensor, mask: Tensor, given: Mapping[str, Tensor]) -> Tensor:
    """Sum over queries the mean of log(1 + exp(s- - s+)) over a query's negatives."""
    negatives = mask[:, 1:]
    losses = F.softplus(scores[:, 1:] - scores[:, :1]) * negatives
    return (losses.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)).sum()


register("loss", "pairwise", RankingLoss(pairwise, needs_negatives=True))
