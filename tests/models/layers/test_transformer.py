import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deepsiam.models.layers.shape import initialise, shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from tests.models import plain
from tests.models.tiny import perturbed, trunk


def inputs(queries=5, slots=7):
    torch.manual_seed(1)
    x, context = torch.randn(2, queries, 16).double(), torch.randn(2, slots, 16).double()
    visible = torch.rand(2, queries, slots) < 0.5
    visible[:, :, 0] = True
    return x.requires_grad_(), context.requires_grad_(), visible


def layer(**config):
    return perturbed(TransformerLayer(shape_of(trunk(**config))))


def test_equals_a_plain_reference_forward_and_backward():
    model, (x, context, visible) = layer(), inputs()
    ours = model(x, context, visible)
    seen = [[row.nonzero()[:, 0].tolist() for row in rows] for rows in visible]
    theirs = torch.stack([plain.transformer_layer(model, *row) for row in zip(x, context, seen, strict=True)])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    leaves, grad = [x, context, *model.parameters()], torch.randn_like(ours)
    gradients = (torch.autograd.grad(out, leaves, grad) for out in (ours, theirs))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_self_attention_is_a_layer_of_bert():
    bert = perturbed(trunk()).eval()
    theirs = bert.encoder.layer[0]
    model = TransformerLayer(shape_of(bert)).double()
    attention = theirs.attention.self
    pairs = {
        model.attention.query: attention.query,
        model.attention.out: theirs.attention.output.dense,
        model.attention_norm: theirs.attention.output.LayerNorm,
        model.feed_forward[0]: theirs.intermediate.dense,
        model.feed_forward[2]: theirs.output.dense,
        model.feed_forward_norm: theirs.output.LayerNorm,
    }
    for mine, other in pairs.items():
        mine.load_state_dict(other.state_dict())
    with torch.no_grad():
        model.attention.key_value.weight.copy_(torch.cat([attention.key.weight, attention.value.weight]))
        model.attention.key_value.bias.copy_(torch.cat([attention.key.bias, attention.value.bias]))
    x = inputs()[0]
    expected = theirs(x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    torch.testing.assert_close(model(x, x, torch.ones(2, 1, 5, dtype=torch.bool)), expected, rtol=0, atol=1e-12)


def test_what_is_not_visible_changes_nothing():
    model, (x, context, visible) = layer(), inputs()
    visible[:, :, 3] = False
    before = model(x, context, visible)
    with torch.no_grad():
        context[:, 3] = 1e6
    assert torch.equal(model(x, context, visible), before)


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_the_trunks(name):
    model, arrays = layer(**{name: 0.5}).train(), inputs()
    assert not torch.allclose(model(*arrays), model(*arrays))
    torch.testing.assert_close(model.eval()(*arrays), layer()(*arrays))


def test_shape_is_the_trunks():
    base = trunk(hidden_size=64, intermediate_size=96, num_attention_heads=4, hidden_act="relu")
    model = TransformerLayer(shape_of(base))
    initialise(model, 0.02)
    assert model.attention.heads == 4
    assert [m.out_features for m in model.feed_forward if isinstance(m, nn.Linear)] == [96, 64]
    x = torch.randn(9)
    assert torch.equal(model.feed_forward[1](x), F.relu(x))
    assert model.attention_norm.eps == base.config.layer_norm_eps
