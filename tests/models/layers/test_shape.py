import pytest

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.layers.shape import layer_norm_eps, shape_of
from tests.models.tiny import CONFIG, trunk

SIZES = (
    "vocab_size",
    "pad_token_id",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "initializer_range",
)


@pytest.mark.parametrize(
    ("model_type", "names"),
    [
        ("bert", {}),
        ("roberta", {}),
        ("electra", {"embedding_size": 16}),
        ("distilbert", {"hidden_dim": 32, "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu"}),
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


def test_what_a_norm_adds_is_in_the_configuration_or_the_code():
    sizes = {key: CONFIG[key] for key in SIZES} | {"model_type": "distilbert", "hidden_dim": 32}
    assert layer_norm_eps(build_trunk(sizes)) == 1e-12
    assert layer_norm_eps(trunk(layer_norm_eps=1e-7)) == 1e-7


def test_a_shape_that_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="its width 8 must be hidden_size"):
        shape_of(trunk(model_type="electra", embedding_size=8))
