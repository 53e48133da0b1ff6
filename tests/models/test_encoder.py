import numpy as np
import pytest
import torch
from transformers import BertModel

from models.encoder import (
    build_trunk,
    check_cls_sees_the_text,
    encode,
    is_causal,
    max_positions,
    pool,
    select,
    shape_of,
)
from tests.models.tiny import CONFIG, VOCABULARY, trunk

IDS = torch.from_numpy(np.random.default_rng(0).integers(5, VOCABULARY.vocab_size, (3, 12)))
MASK = torch.arange(12) < torch.tensor([12, 1, 7])[:, None]


def test_the_trunk_is_a_stock_bert_without_pooler():
    model = build_trunk(CONFIG)
    assert type(model) is BertModel
    assert model.pooler is None
    assert model.config._attn_implementation == "sdpa"
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hiden_layers": 3}, "'num_hiden_layers'; nearest valid: 'num_hidden_layers'"),
        ({"model_type": "bertt"}, "'bertt'; nearest valid: 'bert'"),
        ({"model_type": None}, "unknown model_type None"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": 15}, "not a multiple of the number of attention heads"),
        ({"hidden_act": "gelo"}, "gelo"),
        ({"pad_token_id": 99}, "adding_idx"),
        ({"auto_map": {}}, "'auto_map'"),
        ({"num_attention_heads": 0}, "bert configuration: num_attention_heads must be at least 1, not 0"),
        ({"hidden_size": -4}, "hidden_size must be at least 1, not -4"),
        ({"max_position_embeddings": -1}, "max_position_embeddings must be at least 1, not -1"),
        ({"num_hidden_layers": -1}, "num_hidden_layers must be at least 1, not -1"),
        ({"intermediate_size": 0}, "intermediate_size must be at least 1, not 0"),
        ({"type_vocab_size": -1}, "bert configuration: .*negative dimension"),
    ],
)
def test_a_wrong_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        build_trunk({**CONFIG, **change})


SMALL = {"vocab_size": 50, "pad_token_id": 0}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "funnel"}, "model_type 'funnel' has no plain encoder"),
        ({"model_type": "t5", "d_model": 16, "num_layers": 1, "d_ff": 16}, "'t5' has no max_position_embeddings"),
        ({"model_type": "distilbert", "n_heads": 0}, "distilbert configuration: n_heads must be at least 1, not 0"),
        ({"model_type": "distilbert", "num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
    ],
)
def test_what_is_no_plain_encoder_and_other_names_of_keys(config, message):
    with pytest.raises(ValueError, match=message):
        build_trunk({**SMALL, **config})


def test_hidden_states_equal_stock_bert_called_the_usual_way():
    model = trunk()
    usual = model(input_ids=IDS, attention_mask=MASK.long(), token_type_ids=torch.zeros_like(IDS)).last_hidden_state
    torch.testing.assert_close(encode(model, IDS, MASK), usual, rtol=0, atol=1e-12)


def test_token_types_are_those_of_stock_bert():
    model, types = trunk(), (torch.arange(12) >= torch.tensor([5, 1, 3])[:, None]).long()
    usual = model(input_ids=IDS, attention_mask=MASK.long(), token_type_ids=types).last_hidden_state
    torch.testing.assert_close(encode(model, IDS, MASK, types), usual, rtol=0, atol=1e-12)
    assert (encode(model, IDS, MASK, types) - encode(model, IDS, MASK)).abs().max() > 0.1
    torch.testing.assert_close(encode(model, IDS, MASK, 0 * types), encode(model, IDS, MASK), rtol=0, atol=0)


@pytest.mark.parametrize("model_type", ["roberta", "electra"])
def test_other_encoders_ignore_padding_too(model_type):
    extra = {"embedding_size": 16} if model_type == "electra" else {}
    model = trunk(model_type=model_type, max_position_embeddings=32, **extra).eval()
    short = encode(model, IDS[2:, :7], MASK[2:, :7])
    torch.testing.assert_close(encode(model, IDS, MASK)[2:, :7], short, rtol=0, atol=1e-12)
    shape_of(model)


def test_longest_input():
    assert max_positions(trunk()) == CONFIG["max_position_embeddings"]
    roberta = trunk(model_type="roberta", max_position_embeddings=12 + 1, pad_token_id=0)
    assert max_positions(roberta) == 12  # positions start at pad_token_id + 1
    encode(roberta, IDS, MASK)
    with pytest.raises((IndexError, RuntimeError)):
        encode(roberta, IDS.repeat(1, 2), MASK.repeat(1, 2))


@pytest.mark.parametrize("model_type", ["bert", "roberta", "electra"])
def test_a_causal_encoder_sees_no_later_token_and_is_stock_hugging_faces(model_type):
    extra = {"embedding_size": 16} if model_type == "electra" else {}
    model = trunk(model_type=model_type, max_position_embeddings=32, is_decoder=True, **extra).eval()
    states = encode(model, IDS, MASK)
    usual = model(input_ids=IDS, attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(states[MASK], usual[MASK], rtol=0, atol=1e-12)
    torch.testing.assert_close(encode(model, IDS[:, :5], MASK[:, :5])[0], states[0, :5], rtol=0, atol=1e-12)
    assert torch.isfinite(encode(model, IDS, MASK & False)).all()
    assert is_causal(model)
    with pytest.raises(ValueError, match="causal"):
        check_cls_sees_the_text(model)


def test_pooling_takes_cls_or_the_last_or_the_mean_of_the_tokens():
    hidden = torch.randn(3, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(pool(hidden, MASK, "cls"), hidden[:, 0])
    lasts = torch.stack([row[keep][-1] for row, keep in zip(hidden, MASK, strict=True)])
    assert torch.equal(pool(hidden, MASK, "last"), lasts)
    assert torch.equal(pool(hidden, MASK.flip(1), "last"), hidden[:, -1])
    means = torch.stack([row[keep].mean(0) for row, keep in zip(hidden, MASK, strict=True)])
    torch.testing.assert_close(pool(hidden, MASK, "mean"), means)
    assert pool(hidden.bfloat16(), MASK, "mean").dtype == pool(hidden.half(), MASK, "cls").dtype == torch.float32
    assert pool(hidden.half(), MASK, "last").dtype == torch.float32


def test_select_takes_rows_of_the_flattened_batch():
    hidden = torch.arange(12.0).view(2, 3, 2)
    assert select(hidden, torch.tensor([0, 5, 3])).tolist() == [[0, 1], [10, 11], [6, 7]]


@pytest.mark.parametrize(
    ("model_type", "own"),
    [
        ("bert", {}),
        ("roberta", {}),
        ("distilbert", {"hidden_dim": 32, "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu"}),
        ("modernbert", {"hidden_activation": "gelu", "norm_eps": 1e-12}),
    ],
)
def test_heads_copy_their_trunks_shape_whatever_it_calls_it(model_type, own):
    changes = {key: value for key, value in CONFIG.items() if key not in ("model_type", "hidden_act")}
    keys = {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "pad_token_id"}
    common = {key: value for key, value in changes.items() if key in {*keys, "vocab_size", "initializer_range"}}
    if model_type != "distilbert":
        common["intermediate_size"] = CONFIG["intermediate_size"]
    shape = shape_of(build_trunk({**common, **own, "model_type": model_type}))
    assert (shape.hidden_size, shape.num_attention_heads) == (CONFIG["hidden_size"], CONFIG["num_attention_heads"])
    assert shape.intermediate_size == (32 if model_type == "distilbert" else CONFIG["intermediate_size"])
    assert shape.hidden_act == "gelu"
    assert shape.layer_norm_eps == 1e-12
    assert shape.vocab_size == CONFIG["vocab_size"]


def test_a_shape_that_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="its width 8 must be hidden_size"):
        shape_of(trunk(model_type="electra", embedding_size=8))
