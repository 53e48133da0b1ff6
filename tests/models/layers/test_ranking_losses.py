"""Ties, margins and documents that are left out; the tests of each ranker compare its losses with loops."""

import math

import pytest
import torch

from deepsiam.models.layers.ranking_losses import LOSSES, in_batch_hinge, triplet_hinge, without_higher


def test_rank_net_does_not_compare_equal_scores() -> None:
    own, real = torch.tensor([[2.0, -1.5, 3.0]]), torch.ones(1, 3, dtype=torch.bool)
    assert LOSSES["rank_net"].compute(own, real, {"scores": torch.tensor([[7.0, 7.0, 7.0]])}).item() == 0
    assert LOSSES["rank_net"].compute(own, real, {"scores": torch.tensor([[1.0, 1.0, 0.0]])}).item() == pytest.approx(
        (math.log1p(math.exp(1)) + math.log1p(math.exp(4.5))) / (1 + 3)
    )


def test_the_margin_is_that_of_the_hinge() -> None:
    own, real = torch.tensor([[2.0, 1.5, 3.0]]), torch.ones(1, 3, dtype=torch.bool)
    assert triplet_hinge(own, real, margin=0.0).item() == pytest.approx(0.5)


@pytest.mark.parametrize("margin", [0.0, 0.1, 100.0])
def test_documents_that_score_higher_than_the_positive_and_a_margin_are_left_out(margin: float) -> None:
    scores = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    positives = torch.tensor([0, 4, 2, 1])
    allowed = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    allowed[3] = False
    allowed[torch.arange(4), positives] = True
    left, share = without_higher(scores, positives, allowed, margin)
    expected = 0.0
    for row, keep, rest, p in zip(scores.tolist(), allowed.tolist(), left.tolist(), positives.tolist(), strict=True):
        assert rest == [keep[j] and row[j] <= row[p] + margin for j in range(6)]
        expected += (sum(keep) - sum(rest)) / max(1, sum(keep) - 1)
    assert float(share) == pytest.approx(expected)
    assert (expected > 0) == (margin < 100)
    assert left.gather(1, positives[:, None]).all()
    assert not share.requires_grad


def test_in_batch_hinge_against_a_loop() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positives = torch.tensor([0, 4, 2])
    allowed = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)
    expected = 0.0
    for row, keep, p in zip(scores.tolist(), allowed.tolist(), positives.tolist(), strict=True):
        gaps = [max(0.0, 1 - (row[p] - score)) for j, score in enumerate(row) if keep[j] and j != p]
        expected += sum(gaps) / len(gaps) if gaps else 0.0
    assert in_batch_hinge(scores, positives, allowed).item() == pytest.approx(expected)
    assert in_batch_hinge(scores.half(), positives, allowed).dtype == torch.float32
