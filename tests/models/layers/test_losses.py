"""Cross-entropy over a vocabulary against full logits; ranking losses where ties, margins and allowed documents matter.

The tests of each ranker compare its losses with loops.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import IGNORED
from deepsiam.models.layers.losses import _LinearCrossEntropy, linear_cross_entropy
from deepsiam.models.layers.ranking_losses import LOSSES, in_batch_hinge, triplet_hinge, without_higher
from tests.models.tiny import Sizes


def problem(rows, width=6, vocabulary=11, bias=True, ignored=0.3, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    hidden, weight, b = (
        torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((rows, width), (vocabulary, width), (vocabulary,))
    )
    targets = torch.randint(vocabulary, (rows,), generator=g)
    targets[torch.rand(rows, generator=g) < ignored] = IGNORED
    return hidden, weight, b if bias else None, targets


def full(hidden, weight, bias, targets):
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, ignore_index=IGNORED, reduction="sum")


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, [x for x in inputs if x is not None])


@given(st.integers(0, 20), st.integers(1, 8), st.booleans(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 9))
def test_equals_cross_entropy_of_full_logits(rows, chunk, bias, ignored, seed):
    hidden, weight, b, targets = problem(rows, bias=bias, ignored=ignored, seed=seed)
    ours, reference = linear_cross_entropy(hidden, weight, b, targets, chunk), full(hidden, weight, b, targets)
    torch.testing.assert_close(ours, reference, rtol=1e-10, atol=1e-10)
    mine, theirs = (gradients(3 * loss, hidden, weight, b) for loss in (ours, reference))
    torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    of_frozen = linear_cross_entropy(hidden, weight.detach(), b, targets, chunk)
    torch.testing.assert_close(gradients(3 * of_frozen, hidden), theirs[:1], rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, b, targets), reference, rtol=1e-10, atol=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("vocabulary", [11, 64])
def test_aligned_logits_change_nothing(vocabulary, bias):
    hidden, weight, b, targets = problem(50, vocabulary=vocabulary, bias=bias)
    as_on_gpu = _LinearCrossEntropy.apply(hidden, weight, b, targets, 20, True, True)
    ours = linear_cross_entropy(hidden, weight, b, targets, 20)
    torch.testing.assert_close(as_on_gpu, ours, rtol=1e-12, atol=0)
    aligned, plain = (gradients(loss, hidden, weight, b) for loss in (as_on_gpu, ours))
    torch.testing.assert_close(aligned, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_half_precision_is_summed_in_fp32(dtype, tolerance):
    hidden, weight, bias, targets = problem(700, width=32, vocabulary=50, dtype=dtype)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight, bias)]
    ours, reference = linear_cross_entropy(hidden, weight, bias, targets, 64), full(*exact, targets)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), reference, rtol=1e-3, atol=0)
    rounded = F.cross_entropy(F.linear(hidden, weight, bias).float(), targets, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(ours, rounded, rtol=1e-5, atol=0)  # only the logits are rounded
    count = int((targets != IGNORED).sum())
    pairs = zip(gradients(ours / count, hidden, weight, bias), gradients(reference / count, *exact), strict=True)
    for mine, theirs in pairs:
        assert mine.dtype == dtype
        assert (mine.double() - theirs).norm() / theirs.norm() < tolerance


def test_a_loss_scale_beyond_fp16_gives_the_right_gradient():
    hidden, weight, bias, targets = problem(200, width=32, vocabulary=50)
    exact = [x.detach() for x in (hidden, 0.01 * weight, bias)]
    half = [x.half() for x in exact]
    exact[0].requires_grad_()
    half[0].requires_grad_()
    scale = 2.0**17  # infinite in fp16; its product with these gradients is not
    (ours,) = gradients(linear_cross_entropy(*half, targets) * scale, half[0])
    (reference,) = gradients(full(*exact, targets), exact[0])
    assert torch.isfinite(ours).all()
    assert (ours.double() / scale - reference).norm() / reference.norm() < 3e-3


@pytest.mark.parametrize("training", [True, False])
def test_never_more_than_one_chunk_of_logits(training):
    rows, chunk, vocabulary = 1000, 10, 2000
    hidden, weight, bias, targets = problem(rows, width=3, vocabulary=vocabulary)
    with Sizes() as sizes, torch.set_grad_enabled(training):
        loss = linear_cross_entropy(hidden, weight, bias, targets, chunk)
        if training:
            loss.backward()
    assert max(sizes.allocated) == chunk * vocabulary
    assert (vocabulary * 3 in sizes.allocated) == training  # the gradient of the weight


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
