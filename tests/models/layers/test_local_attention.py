import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.layers.local_attention import local_attention, masked_local_attention
from tests.models.plain import same_gradients
from tests.models.tiny import Sizes


def naive(query, key, value, window):
    """Compute attention with the full matrix of scores, masked but for the window and position 0."""
    length, width = query.shape[1], query.shape[-1]
    mask = torch.tensor([[j == 0 or t - window < j <= t for j in range(length)] for t in range(length)])
    scores = torch.einsum("bthd,bjhd->bhtj", query, key) / width**0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.einsum("bhtj,bjhd->bthd", weights, value)


@pytest.mark.parametrize("attend", [local_attention, masked_local_attention])
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 3), st.integers(1, 14))
def test_equals_the_masked_matrix(attend, batch, length, heads, window):
    torch.manual_seed(length)
    inputs = [torch.randn(batch, length, heads, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    grad = torch.randn(batch, length, heads, 4, dtype=torch.float64)
    ours, reference = attend(*inputs, window), naive(*inputs, window)
    torch.testing.assert_close(ours, reference, rtol=0, atol=1e-12)
    same_gradients(inputs, (ours * grad).sum(), (reference * grad).sum(), atol=1e-12)


@pytest.mark.parametrize("attend", [local_attention, masked_local_attention])
def test_dropout_drops_weights_and_keeps_their_mean(attend):
    length, window = 600, 3
    torch.manual_seed(0)
    query = key = torch.zeros(1, length, 1, length)
    value = torch.eye(length).view(1, length, 1, length)
    kept = attend(query, key, value, window)[0, :, 0]
    dropped = attend(query, key, value, window, dropout=0.25)[0, :, 0]
    inside = kept > 0
    assert (dropped[inside] == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    ratio = dropped[inside & (dropped > 0)] / kept[inside & (dropped > 0)]
    torch.testing.assert_close(ratio, torch.full_like(ratio, 1 / 0.75))


def test_no_tensor_grows_with_the_square_of_the_length():
    x = torch.randn(1, 2000, 1, 4, requires_grad=True)
    with Sizes() as sizes:
        local_attention(x, x, x, 3).sum().backward()
    assert max(sizes.allocated) <= 2000 * 4 * 4
