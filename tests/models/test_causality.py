"""Causality is found by running a trunk, whatever its configuration says, and every method that needs [CLS] asks."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.causality import is_causal
from deepsiam.models.encode import encode_texts
from deepsiam.models.registry import METHODS
from deepsiam.models.trunk import make_bidirectional, require_bidirectional

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
COMMON = {**SIZES, "vocab_size": 60, "pad_token_id": 1, "max_position_embeddings": 40}
SPECIAL = {"bos_token_id": 2, "eos_token_id": 3}
GROUPED = {"num_key_value_heads": 1, **SPECIAL}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
CAUSAL: dict[str, dict[str, Any]] = {
    "gpt2": {"hidden_act": None, "intermediate_size": None},
    "llama": GROUPED,
    "mistral": GROUPED,
    "mixtral": {**GROUPED, **EXPERTS},
    "qwen2": GROUPED,
    "qwen3": GROUPED,
    "gemma": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8},
    "modernbert-decoder": {**SPECIAL, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8},
    "opt": {"intermediate_size": None, "ffn_dim": 32, "word_embed_proj_dim": 16},
    "bert": {"is_decoder": True},
}
BIDIRECTIONAL: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8},
    "mpnet": {},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4},
    "modernbert": {**SPECIAL, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8, "use_bidirectional_attention": True},
    "llama": {**GROUPED, "is_causal": False},
}
TEXTS = [torch.from_numpy(np.random.default_rng(length).integers(4, 60, length)) for length in (3, 11, 7, 1)]
RIGHT = pad_sequence(TEXTS, batch_first=True, padding_value=1)
KINDS = [(kind, True) for kind in CAUSAL] + [(kind, False) for kind in BIDIRECTIONAL]


def settings(kind: str, causal: bool) -> dict[str, Any]:
    own = {"model_type": kind, **COMMON, **(CAUSAL if causal else BIDIRECTIONAL)[kind]}
    return {key: value for key, value in own.items() if value is not None}


def decoder(**changes: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    return build_trunk({**settings("modernbert-decoder", True), **changes})


@pytest.mark.parametrize(("kind", "causal"), KINDS)
def test_causality_is_found_without_touching_the_generators_or_the_mode(kind: str, causal: bool) -> None:
    torch.manual_seed(0)
    trunk = build_trunk(settings(kind, causal)).train()
    assert is_causal(trunk) is is_causal(copy.deepcopy(trunk)) is causal
    vars(trunk).pop("_sees_no_later_token")
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert is_causal(trunk) is causal
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert trunk.training
    with torch.device("meta"):
        bare = build_trunk(settings(kind, causal))
    assert {parameter.device.type for parameter in bare.parameters()} == {"meta"}
    assert is_causal(bare) is causal


@pytest.mark.parametrize("std", [1e-3, 2e-2, 1.0])
def test_small_and_large_weights_do_not_hide_it(std: float) -> None:
    for name, causal in (("bert", False), ("bert", True), ("modernbert-decoder", True), ("mixtral", True)):
        torch.manual_seed(1)
        assert is_causal(build_trunk({**settings(name, causal), "initializer_range": std})) is causal


def test_what_a_configuration_says_later_does_not_count() -> None:
    trunk = build_trunk(settings("bert", False))
    trunk.config.is_decoder = True
    require_bidirectional(trunk)
    causal = decoder()
    causal.config.is_decoder = False
    with pytest.raises(ValueError, match=r"the trunk \(model_type 'modernbert-decoder'\) is causal, so \[CLS\] sees"):
        require_bidirectional(causal)


ONE = {"negatives_per_query": 1}
NEEDED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(["cross_encoder", "duobert", "label_ranker"], ONE),
    "cross_thought_answers": {"special_tokens": 2, **ONE},
    "cross_thought_pairs": {"special_tokens": 2, "classes": 2},
    "cross_thought": {"special_tokens": 2},
}
POOLED = ("siamese", "cross_encoder", "duobert", "ict", "pairs")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_reads_the_first_state_refuses_a_causal_trunk(name: str) -> None:
    config = METHODS[name](name=name, **NEEDED.get(name, {}))
    if name in ("clm", "sparse", "label_ranker"):  # a sparse encoder leaves out that state
        config.model(decoder())
        return
    with pytest.raises(ValueError, match=r"is causal, so \[CLS\] sees no text: (take|set)"):
        config.model(decoder())
    if name in POOLED:  # with nothing else set, the last state is read
        config.for_trunk(decoder()).model(decoder())
        assert config.for_trunk(decoder()).pooling == "last"
        assert config.for_trunk(build_trunk(settings("bert", False))).pooling == "cls"


def test_models_that_do_not_turn_token_ids_into_states_are_refused() -> None:
    bart = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    for kind, sizes, message in (
        (
            "bros",
            {**SIZES, "hidden_size": 32, "dim_bbox": 8},
            "'bros' does not turn token ids alone into states: .*bbox",
        ),
        ("bart", bart, "'bart' is an encoder and a decoder"),
    ):
        with pytest.raises(ValueError, match=message):
            build_trunk({"model_type": kind, **{key: COMMON[key] for key in COMMON.keys() - SIZES}, **sizes})


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "qwen3", "gemma3_text"])
def test_a_decoder_that_is_made_bidirectional_sees_what_a_mask_of_all_tokens_shows(kind: str) -> None:
    torch.manual_seed(0)
    trunk = build_trunk(settings(kind, True)).double().eval()
    theirs = copy.deepcopy(trunk)
    make_bidirectional(trunk)
    assert not is_causal(trunk)
    states = encode_texts(trunk, RIGHT, RIGHT != 1)
    shown = torch.zeros(4, 1, *[RIGHT.shape[1]] * 2, dtype=torch.float64)
    shown = shown.masked_fill(RIGHT[:, None, None] == 1, torch.finfo(torch.float64).min)
    expected = theirs(input_ids=RIGHT, attention_mask=shown).last_hidden_state
    for i, text in enumerate(TEXTS):
        torch.testing.assert_close(states[i, : len(text)], expected[i, : len(text)], rtol=0, atol=1e-6)
        alone = encode_texts(trunk, text[None], torch.ones_like(text[None], dtype=torch.bool))
        torch.testing.assert_close(alone[0], states[i, : len(text)], rtol=0, atol=1e-6)


def test_a_trunk_that_cannot_be_made_bidirectional_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'bert'\) is bidirectional already: leave it out"):
        make_bidirectional(build_trunk(settings("bert", False)))
    shape = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 60, "pad_token_id": 1, "n_positions": 40}
    with pytest.raises(ValueError, match=r"does not make the trunk \(model_type 'openai-gpt'\) bidirectional"):
        make_bidirectional(build_trunk({"model_type": "openai-gpt", **shape}))
