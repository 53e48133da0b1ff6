"""Losses on the scores of a query's candidates, each a scalar SUM in fp32: over queries, or over pairs.

Common arguments: `scores` fp32 [Q, n] of each query's own candidates, and `mask`, bool [Q, n], false where a query has
fewer than n. Losses with a positive expect it in column 0; a query without negatives counts 0 in these.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.registry import Registry


class RankingLoss(NamedTuple):
    """A loss over each query's own candidates, by the name in a recipe's `method.loss`.

    `compute` has the common arguments, and a third: the candidates' `labels` (relevance) and, where the loss learns a
    teacher's, their `scores`, fp32 [Q, n]. It returns the sum over queries, a scalar in fp32.
    """

    compute: Callable[[Tensor, Tensor, Mapping[str, Tensor]], Tensor]
    has_teacher: bool = False
    needs_negatives: bool = False  # at least one for each query


def candidates_losses(
    losses: Iterable[str], scores: Tensor, mask: Tensor, supervision: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Compute each named loss over each query's own candidates; `supervision` is the third argument of `LOSSES`."""
    return {loss: LOSSES[loss].compute(scores, mask, supervision) for loss in losses}


def triplet_hinge(scores: Tensor, mask: Tensor, margin: float = 1.0) -> Tensor:
    """Sum relu(margin - (s(q, d+) - s(q, d-))) over queries: the SEED paper, section 3.3, with its margin of 1.

    A query's triples are averaged, so the weight of a query does not depend on its number of negatives.
    """
    triples = F.relu(margin - (scores[:, :1] - scores[:, 1:])) * mask[:, 1:]
    return (triples.sum(dim=1) / mask[:, 1:].sum(dim=1).clamp(min=1)).sum()


def softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Sum -log softmax over each query's own candidates, at its positive."""
    return -scores.masked_fill(~mask, -torch.inf).log_softmax(dim=1)[:, 0].sum()


def in_batch_softmax(scores: Tensor, positives: Tensor, mask: Tensor) -> Tensor:
    """Sum over queries -log softmax, over the query's allowed documents, at its positive.

    `positives`, int64 [Q], are columns of the scores [Q, D]; `mask`, bool [Q, D], is true there.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return F.cross_entropy(scores.to(dtype).masked_fill(~mask, -torch.inf), positives, reduction="sum")


def weigh_negatives(logits: Tensor, scores: Tensor, positives: Tensor, strength: float) -> Tensor:
    """Let a negative count exp(strength x its score) times in a softmax: add that product to its logit, as a constant.

    EmbeddingGemma (Vera et al., 2025), section 2.2, does so for mined negatives, with a strength of 5 on cosines; here
    it is for all. `logits` and `scores`, before the temperature, are [Q, D]; the positive's logit stays.
    """
    return logits + (strength * scores.detach()).scatter(1, positives[:, None], 0.0)


def in_batch_hinge(scores: Tensor, positives: Tensor, mask: Tensor, margin: float = 1.0) -> Tensor:
    """Sum over queries the mean of relu(margin - (s(q, d+) - s(q, d))) over the query's other allowed documents.

    RepBERT (Zhan et al., 2020), section 3.2, which divides by the number of all documents. The arguments are
    those of `in_batch_softmax`; a query without another allowed document counts 0.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    negatives = mask.scatter(1, positives[:, None], False)  # the positive's own gap, 0, would count as the margin
    gaps = F.relu(margin - (scores.gather(1, positives[:, None]) - scores)) * negatives  # [Q, D]
    return (gaps.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)).sum()


def without_higher(scores: Tensor, positives: Tensor, mask: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Leave out the allowed documents that score more than a margin above the positive: they may be relevant, too.

    Qwen3-Embedding (Zhang et al., 2025), section 3.1, with a margin of 0.1 on cosines, for in-batch and hard negatives
    alike. The arguments are those of `in_batch_softmax`. Return the documents that remain, bool [Q, D], and the share
    of a query's negatives that do not, summed over queries.
    """
    remaining = mask & (scores <= scores.gather(1, positives[:, None]) + margin)
    ignored = (mask & ~remaining).sum(dim=1)
    return remaining, (ignored / (mask.sum(dim=1) - 1).clamp(min=1)).sum()  # the positive is allowed, too


def binary(scores: Tensor, mask: Tensor, relevant: Tensor) -> Tensor:
    """Sum the logistic loss over pairs of query and candidate (monoBERT, section 3); `relevant`: bool [Q, n]."""
    return (F.binary_cross_entropy_with_logits(scores, relevant.to(scores.dtype), reduction="none") * mask).sum()


def distillation(scores: Tensor, mask: Tensor, teacher: Tensor) -> Tensor:
    """Sum KL(teacher || student) over queries, of softmaxes over the query's candidates; `teacher`: scores [Q, n]."""
    student, taught = (x.masked_fill(~mask, -torch.inf).log_softmax(dim=1) for x in (scores, teacher))
    terms = taught.exp() * (taught - student)
    return terms.masked_fill(~mask, 0.0).sum()  # an empty slot is NaN: -inf less -inf


def margin_mse(scores: Tensor, mask: Tensor, teacher: Tensor) -> Tensor:
    """Sum the squared difference of the student's and the teacher's margins s(q, d+) - s(q, d-) over queries.

    For each query it is averaged over its negatives. Hofstätter et al., 2020, equation 1. `teacher`: scores [Q, n].
    """
    gaps = ((scores[:, :1] - scores[:, 1:]) - (teacher[:, :1] - teacher[:, 1:])).square() * mask[:, 1:]
    return (gaps.sum(dim=1) / mask[:, 1:].sum(dim=1).clamp(min=1)).sum()


def rank_net(scores: Tensor, mask: Tensor, teacher: Tensor) -> Tensor:
    """Sum log(1 + exp(s_j - s_i)) / (r_i + r_j) over queries and pairs of which the teacher prefers i; ranks r from 1.

    RankNet (Burges et al., 2005) with the weights of FIRST (Reddy et al., 2024), so that the top counts most. Equal
    scores of the teacher, fp32 [Q, n], share a rank and are not compared.
    """
    prefers = (teacher[:, :, None] > teacher[:, None, :]) & mask[:, :, None] & mask[:, None, :]  # [Q, i, j]
    ranks = 1 + prefers.sum(dim=1)  # [Q, j]: how many the teacher prefers to j
    weights = prefers / (ranks[:, :, None] + ranks[:, None, :]).to(scores.dtype)
    return (F.softplus(scores[:, None, :] - scores[:, :, None]) * weights).sum()


LOSSES: Registry[RankingLoss] = Registry(
    "loss",
    {
        "softmax": RankingLoss(lambda scores, mask, given: softmax(scores, mask)),
        "hinge": RankingLoss(lambda scores, mask, given: triplet_hinge(scores, mask), needs_negatives=True),
        "binary": RankingLoss(lambda scores, mask, given: binary(scores, mask, given["labels"] > 0)),
        "kl": RankingLoss(lambda scores, mask, given: distillation(scores, mask, given["scores"]), has_teacher=True),
        "margin_mse": RankingLoss(
            lambda scores, mask, given: margin_mse(scores, mask, given["scores"]), has_teacher=True
        ),
        "rank_net": RankingLoss(lambda scores, mask, given: rank_net(scores, mask, given["scores"]), has_teacher=True),
    },
)
