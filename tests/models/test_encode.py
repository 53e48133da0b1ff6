"""Texts through a trunk: the states are those of stock Hugging Face, with padding, in rectangles and in one row."""

import numpy as np
import pytest
import torch

from deepsiam.models.causality import is_causal
from deepsiam.models.encode import (
    TAKES_RECTANGLES,
    UNPADS,
    encode,
    encode_texts,
    encode_with_layer,
    insert_special_tokens,
)
from deepsiam.models.trunk import require_bidirectional
from tests.models.tiny import VOCABULARY, trunk
from tests.models.trunks import SETTINGS, attend_text_by_text, trunk_like

IDS = torch.from_numpy(np.random.default_rng(0).integers(5, VOCABULARY.vocab_size, (3, 12)))
MASK = torch.arange(12) < torch.tensor([12, 1, 7])[:, None]


def test_states_and_token_types_are_those_of_stock_bert_called_the_usual_way():
    model, types = trunk(), (torch.arange(12) >= torch.tensor([5, 1, 3])[:, None]).long()
    for given in (types, 0 * types):
        usual = model(input_ids=IDS, attention_mask=MASK.long(), token_type_ids=given).last_hidden_state
        torch.testing.assert_close(encode(model, IDS, MASK, given), usual, rtol=0, atol=1e-12)
    torch.testing.assert_close(encode(model, IDS, MASK), usual, rtol=0, atol=1e-12)


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
        require_bidirectional(model)


@pytest.mark.parametrize("number", [0, 2])
def test_special_tokens_are_inserted_after_cls(number):
    model = trunk(vocab_size=VOCABULARY.vocab_size + number)
    texts = torch.tensor([[2, 7, 3], [2, 3, 0]])
    ids, mask = insert_special_tokens(model, texts, texts != VOCABULARY.pad, number)
    added = [40, 41][:number]
    assert ids.tolist() == [[2, *added, 7, 3], [2, *added, 3, 0]]
    assert mask.long().tolist() == [[1] * (3 + number), [1] * (2 + number) + [0]]


LONG = 24
LENGTHS = torch.tensor([24, 3, 9, 23, 1, 10, 24, 4])
TEXTS = torch.from_numpy(np.random.default_rng(1).integers(5, VOCABULARY.vocab_size, (len(LENGTHS), LONG)))
TEXT_MASK = torch.arange(LONG) < LENGTHS[:, None]
OPTIONS = {"bert": {}, "electra": {"embedding_size": 16}, "roberta": {}, "xlm-roberta": {}}


def shapes_of(model):
    """A list that gets the shape of the ids in every forward pass of a trunk."""
    shapes = []
    model.register_forward_pre_hook(lambda *call: shapes.append(tuple(call[2]["input_ids"].shape)), with_kwargs=True)
    return shapes


def with_gradients(run, model, *inputs):
    model.zero_grad()
    states = run(model, *inputs)
    (states[TEXT_MASK] * torch.linspace(-1, 1, states.shape[2])).square().sum().backward()
    return states[TEXT_MASK], {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("model_type", "checkpointing"), [*((name, False) for name in OPTIONS), ("bert", True)])
def test_texts_in_rectangles_have_the_same_states_and_gradients(model_type, checkpointing):
    model = trunk(model_type=model_type, max_position_embeddings=32, **OPTIONS[model_type]).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    assert set(OPTIONS) == set(TAKES_RECTANGLES)
    masked = torch.where(TEXT_MASK, TEXTS, VOCABULARY.pad)
    expected, gradients = with_gradients(encode, model, masked, TEXT_MASK)
    shapes = shapes_of(model)
    states, own = with_gradients(encode_texts, model, masked, TEXT_MASK)
    assert shapes == [(1, 3 * 24 + 2 * 16 + 3 * 8)]  # widths 24, 16 and 8: lengths 23 and 24, 9 and 10, the rest
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(own, gradients, rtol=0, atol=1e-10)
    torch.testing.assert_close(encode(model, TEXTS, TEXT_MASK)[TEXT_MASK], expected, rtol=0, atol=1e-12)


def test_texts_in_rectangles_keep_their_token_types():
    model, types = trunk(), (torch.arange(LONG) >= 2).long().expand(len(LENGTHS), -1)
    states, expected = (run(model, TEXTS, TEXT_MASK, types)[TEXT_MASK] for run in (encode_texts, encode))
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("config", "lengths"),
    [
        ({}, [24, 24, 20, 19]),
        ({"is_decoder": True}, [24, 3]),
        ({"model_type": "camembert", "max_position_embeddings": 32}, [24, 3]),
    ],
)
def test_texts_of_like_lengths_and_other_trunks_stay_one_rectangle(config, lengths):
    model = trunk(**config).eval()
    mask = torch.arange(LONG) < torch.tensor(lengths)[:, None]
    shapes = shapes_of(model)
    states = encode_texts(model, TEXTS[: len(mask)], mask)
    assert shapes == [(len(mask), LONG)]
    torch.testing.assert_close(states, encode(model, TEXTS[: len(mask)], mask), rtol=0, atol=0)


def without_padding(monkeypatch, run, model, *inputs):
    """Return the states and gradients, with a kernel for texts in one row, and the shapes of the trunk's inputs."""
    monkeypatch.setattr("deepsiam.models.encode.kernel_for", lambda *_: attend_text_by_text)
    shapes = shapes_of(model)
    return with_gradients(run, model, *inputs), shapes


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_without_padding_have_the_same_states_and_gradients(name, monkeypatch):
    model = trunk_like(name).train()
    expected = with_gradients(encode, model, TEXTS, TEXT_MASK)
    early, late = encode_with_layer(model, TEXTS, TEXT_MASK, 1)
    usual = model(input_ids=TEXTS, attention_mask=TEXT_MASK.long(), output_hidden_states=True)
    for states, stock in ((early, usual.hidden_states[1]), (late, usual.last_hidden_state)):
        torch.testing.assert_close(states[TEXT_MASK], stock[TEXT_MASK], rtol=0, atol=1e-12)
    torch.testing.assert_close(late[TEXT_MASK], expected[0], rtol=0, atol=1e-12)
    assert {name.split(",")[0] for name in SETTINGS} == set(UNPADS)
    for checkpoints in (False, *([True] if name in ("bert", "llama") else [])):
        if checkpoints:
            model.gradient_checkpointing_enable()
        own, shapes = without_padding(monkeypatch, encode, model, TEXTS, TEXT_MASK)
        assert shapes == [(1, int(LENGTHS.sum()))]
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("lengths", [LENGTHS, 0 * LENGTHS + LONG, LENGTHS * (LENGTHS > 4), 0 * LENGTHS])
def test_texts_without_padding_keep_token_types_positions_and_layers(lengths, monkeypatch):
    model, mask = trunk(max_position_embeddings=40), torch.arange(LONG) < lengths[:, None]
    types, positions = ((torch.arange(LONG) + i) % (2 + 14 * i) for i in (0, 1))
    arguments = [each.expand(len(lengths), -1) for each in (types, positions)]
    expected = encode(model, TEXTS, mask, *arguments), *encode_with_layer(model, TEXTS, mask, 1)
    monkeypatch.setattr("deepsiam.models.encode.kernel_for", lambda *_: attend_text_by_text)
    own = encode(model, TEXTS, mask, *arguments), *encode_with_layer(model, TEXTS, mask, 1)
    for states, padded in zip(own, expected, strict=True):
        torch.testing.assert_close(states[mask], padded[mask], rtol=1e-9, atol=1e-10)


def test_a_trunk_without_sdpa_keeps_its_padding(monkeypatch):
    model = trunk()
    model.set_attn_implementation("eager")
    expected = with_gradients(encode, model, TEXTS, TEXT_MASK)
    for run in (encode, encode_texts):
        own, shapes = without_padding(monkeypatch, run, model, TEXTS, TEXT_MASK)
        assert shapes == [tuple(TEXTS.shape)]
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-10)
