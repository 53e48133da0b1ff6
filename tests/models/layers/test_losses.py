import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import IGNORED
from deepsiam.models.layers.losses import _LinearCrossEntropy, linear_cross_entropy
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
