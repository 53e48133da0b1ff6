"""Trunks of any type are built from a configuration; what cannot be built is refused before it is made."""

from typing import Any

import pytest
import torch
from transformers import BertModel

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.causality import is_causal
from deepsiam.models.encode import encode
from deepsiam.models.sizes import check_sizes
from deepsiam.models.trunk import layers_of, max_positions
from tests.models.tiny import CONFIG


def test_the_trunk_is_a_stock_bert_without_pooler():
    model = build_trunk(CONFIG)
    assert type(model) is BertModel
    assert model.pooler is None
    assert model.config._attn_implementation == "sdpa"
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_an_encoder_whose_type_has_no_sdpa_is_built_with_its_own_attention() -> None:
    model = build_trunk({**CONFIG, "model_type": "mpnet"}).eval()
    assert model.config._attn_implementation == "eager"
    ids, mask = torch.randint(5, model.config.vocab_size, (2, 9)), torch.ones(2, 9, dtype=torch.bool)
    mask[1, 6:] = False
    states = encode(model, ids, mask)[mask]
    torch.testing.assert_close(states, model(ids, attention_mask=mask.long()).last_hidden_state[mask])


SMALL = {"vocab_size": 50, "pad_token_id": 0}
ROWS: list[tuple[dict[str, Any], str]] = [
    ({"num_hiden_layers": 3}, "'num_hiden_layers'; nearest valid: 'num_hidden_layers'"),
    ({"model_type": "bertt"}, "'bertt'; nearest valid: 'bert'"),
    ({"model_type": None}, "unknown model_type None"),
    ({"hidden_size": "wide"}, "hidden_size"),
    ({"hidden_size": 15}, "not a multiple of the number of attention heads"),
    ({"hidden_act": "gelo"}, "^unknown bert hidden_act 'gelo'; nearest valid: 'gelu'$"),
    ({"pad_token_id": 99}, "adding_idx"),
    ({"auto_map": {}}, "'auto_map'"),
    ({"num_attention_heads": 0}, "bert configuration: num_attention_heads must be at least 1, not 0"),
    ({"hidden_size": -4}, "hidden_size must be at least 1, not -4"),
    ({"max_position_embeddings": -1}, "max_position_embeddings must be at least 1, not -1"),
    ({"num_hidden_layers": -1}, "num_hidden_layers must be at least 1, not -1"),
    ({"intermediate_size": 0}, "intermediate_size must be at least 1, not 0"),
    ({"type_vocab_size": -1}, "bert configuration: .*negative dimension"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000, and at most 1,000 is possible"),
    ({"hidden_size": 10**9}, "hidden_size is 1,000,000,000, and at most 16,777,216 is possible"),
    ({"vocab_size": 10**12}, "vocab_size is 1,000,000,000,000"),
    ({"max_position_embeddings": 10**12}, "max_position_embeddings is"),
    ({"type_vocab_size": -(10**12)}, "type_vocab_size is -1,000,000,000,000"),
    ({"vocab_size": 10**4000}, "vocab_size is a number of more than 64 bits"),
    ({"hidden_size": 2**20, "vocab_size": 2**24}, "its weights would be .* at most 68,719,476,736 are possible"),
    ({"hidden_size": 2**16, "num_hidden_layers": 1000}, "its weights would be"),
    ({"intermediate_size": 2**24, "hidden_size": 2**14}, "its weights would be"),
    # of other types
    ({"model_type": "funnel"}, "model_type 'funnel' has no plain encoder"),
    ({"model_type": "nystromformer"}, "model_type 'nystromformer' mixes padding into the texts: choose another"),
    ({"model_type": "bloom", "hidden_size": 16, "n_layer": 1, "n_head": 2}, "'bloom' has no max_position_embedd"),
    (
        {"model_type": "xlnet", "d_model": 16, "n_head": 2, "n_layer": 1},
        "'xlnet' has no max_position.*: take .* such as bert",
    ),
    ({"model_type": "distilbert", "activation": "relo"}, "unknown distilbert activation 'relo'; .*: 'relu'"),
    ({"model_type": "gpt2", "activation_function": "rel"}, "unknown gpt2 activation_function 'rel'; .*: 'relu'"),
    ({"model_type": "distilbert", "n_heads": 0}, "distilbert configuration: n_heads must be at least 1, not 0"),
    ({"model_type": "distilbert", "num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
    ({"model_type": "modernbert", "num_hidden_layers": 10**9}, "modernbert configuration: num_hidden_layers is"),
    ({"model_type": "distilbert", "n_layers": 10**9}, "n_layers is 1,000,000,000, and at most 1,000"),
]


@pytest.mark.parametrize(("changes", "message"), ROWS)
def test_a_trunk_that_cannot_be_built_is_refused(changes: dict[str, Any], message: str) -> None:
    common = SMALL if changes.get("model_type", "bertt") not in ("bertt", None) else CONFIG
    with pytest.raises(ValueError, match=message):
        build_trunk({**common, **changes})


def test_special_ids_of_another_vocabulary_are_unset_without_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    trunk = build_trunk({"model_type": "modernbert", "vocab_size": 300, "pad_token_id": 0, "eos_token_id": 3, **sizes})
    assert (trunk.config.cls_token_id, trunk.config.eos_token_id) == (None, 3)
    assert capfd.readouterr().err == ""
    trunk = build_trunk({"model_type": "roberta", "vocab_size": 300, "pad_token_id": 0, **sizes})
    assert (trunk.config.bos_token_id, trunk.config.eos_token_id) == (0, 2)


def test_the_encoder_of_t5_is_taken_without_its_decoder_and_reads_long_texts():
    shape = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 32}
    trunk = build_trunk({"model_type": "t5", **SMALL, **shape})
    assert not any("decoder" in name for name, _ in trunk.named_parameters())
    assert not is_causal(trunk)
    assert len(layers_of(trunk)) == 2
    ids = torch.randint(1, 50, (1, max_positions(trunk)))
    assert encode(trunk, ids, torch.ones_like(ids, dtype=torch.bool)).isfinite().all()


def test_sizes_are_found_at_any_depth_and_other_numbers_are_not_bounded() -> None:
    check_sizes({"rope_theta": 5 * 10**8, "nested": {"rope_theta": 10**9}, "eps": 1e30, "name": "1e30"}.items(), "")
    with pytest.raises(ValueError, match="a.json: num_labels is 100,000,000, and at most 100,000 is possible"):
        check_sizes({"num_labels": 10**8}.items(), "a.json: ")
    with pytest.raises(ValueError, match="a.json: text.num_hidden_layers is"):
        check_sizes({"text": {"num_hidden_layers": 10**8}}.items(), "a.json: ")
