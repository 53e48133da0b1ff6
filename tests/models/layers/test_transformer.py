"""BERT's layer, and the shape that it takes from a trunk of any type."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.layers.shape import initialise, shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from tests.models.tiny import CONFIG, perturbed, trunk


def inputs(queries=5, slots=7):
    torch.manual_seed(1)
    x, context = torch.randn(2, queries, 16).double(), torch.randn(2, slots, 16).double()
    visible = torch.rand(2, queries, slots) < 0.5
    visible[:, :, 0] = True
    return x.requires_grad_(), context.requires_grad_(), visible


def layer(**config):
    return perturbed(TransformerLayer(shape_of(trunk(**config))))


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


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_the_trunks(name):
    model, arrays = layer(**{name: 0.5}).train(), inputs()
    assert not torch.allclose(model(*arrays), model(*arrays))
    torch.testing.assert_close(model.eval()(*arrays), layer()(*arrays))


def test_shape_is_the_trunks():
    base = trunk(hidden_size=64, intermediate_size=96, num_attention_heads=4, hidden_act="relu", layer_norm_eps=1e-7)
    model = TransformerLayer(shape_of(base))
    initialise(model, 0.02)
    assert model.attention.heads == 4
    assert [m.out_features for m in model.feed_forward if isinstance(m, nn.Linear)] == [96, 64]
    x = torch.randn(9)
    assert torch.equal(model.feed_forward[1](x), F.relu(x))
    assert model.attention_norm.eps == 1e-7


SIZES = CONFIG.keys() - {"model_type", "intermediate_size", "hidden_dropout_prob", "attention_probs_dropout_prob"}


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("bert", {}),
        ("roberta", {}),
        ("electra", {"embedding_size": 16}),
        (
            "distilbert",
            {"hidden_dim": 32, "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu"},
        ),  # eps: in code
        ("modernbert", {"hidden_activation": "gelu", "norm_eps": 1e-12}),
    ],
)
def test_the_shape_is_read_whatever_its_names_in_the_configuration(model_type, names):
    config = {key: CONFIG[key] for key in SIZES} | names | {"model_type": model_type}
    if model_type != "distilbert":
        config["intermediate_size"] = CONFIG["intermediate_size"]
    shape = shape_of(build_trunk(config))
    assert (shape.hidden_size, shape.num_attention_heads) == (CONFIG["hidden_size"], CONFIG["num_attention_heads"])
    assert shape.intermediate_size == (32 if model_type == "distilbert" else CONFIG["intermediate_size"])
    assert shape.hidden_act == "gelu"
    assert shape.layer_norm_eps == 1e-12
    assert shape.vocab_size == CONFIG["vocab_size"]


def test_a_shape_that_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="its width 8 must be hidden_size"):
        shape_of(trunk(model_type="electra", embedding_size=8))
