"""The cross-encoder and duoBERT: pairs, duels, heads and losses, against one input at a time."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.candidates import Example
from deepsiam.models.batching.framing import DuelFraming, Framing
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.registry import MATCHING
from deepsiam.models.trunk import token_types
from tests.models import plain
from tests.models.matching.examples import group, keys_of, micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk

CLS, SEP = VOCABULARY.cls, VOCABULARY.sep
EXAMPLES = [positive(0, 1), positive(1, query=(30, 31, 32)), positive(2, given=[7, 8])]
POOLINGS = ("cls", "last", "mean", "max")
GROUPS = [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0, 2: 0.25})]
SCORED = [
    replace(positive(0, given=[4, 6, 7]), scores=np.array([2.0, 0.5, -1.0, 1.5], np.float32)),
    replace(positive(2, given=[8]), scores=np.array([0.0, 0.5], np.float32)),
]
LOSSES: list[tuple[Any, list[Example]]] = [
    ({"loss": "softmax", "negatives_per_query": 2}, EXAMPLES),
    ({"loss": "binary", "negatives_per_query": 1}, EXAMPLES),
    ({"loss": "kl"}, GROUPS),
    ({"loss": "margin_mse"}, GROUPS),
    ({"loss": "classes", "classes": 3}, [group({3: 2.0}), group({4: 0.0}), group({6: 1.0})]),
    ({"loss": {"softmax": 1.0, "kl": 0.5, "binary": 0.1}}, SCORED),
]
cross_encoder = partial(keys_of, "cross_encoder")


def test_pairs_are_a_query_and_each_of_its_candidates() -> None:
    batch = micro_batch(cross_encoder(loss="kl"), GROUPS)
    arrays = batch.arrays
    rows = [ids[mask].tolist() for ids, mask in zip(arrays["pair_ids"], arrays["pair_mask"], strict=True)]
    query = [CLS, 30, 31, SEP]
    assert rows == [[*query, *[5 + i] * (i + 1), SEP] for i in (3, 6, 4, 5, 2)]
    assert arrays["pair_types"].sum(1).tolist() == [5, 8, 6, 7, 4]  # the tokens of the documents and their [SEP]
    assert arrays["candidates"].tolist() == [[0, 2, 3], [1, 4, -1]]
    assert batch.counts == {"kl": 2}
    assert batch.tokens == sum(2 + i + 1 for i in (3, 6, 4, 5, 2))
    assert micro_batch(cross_encoder(loss="binary"), GROUPS).counts == {"binary": 5}


def test_a_norm_of_the_head_suits_a_trunk_that_names_no_epsilon() -> None:
    keys = cross_encoder(hidden_norm=True, negatives_per_query=1)
    sizes = {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    model = keys.model(build_trunk({"model_type": "distilbert", "pad_token_id": 0, **sizes}))
    assert model.head[2].eps == 1e-12


LAYERS: list[dict[str, Any]] = [
    {"hidden_layer": False},
    {"hidden_activation": "relu"},
    {"hidden_activation": "gelu", "hidden_norm": True, "separators": 2},
    {"token_types": False, "max_pair_tokens": 12},
]


CASES = [("cls", {}, *loss) for loss in LOSSES]
CASES += [(pooling, layers, *LOSSES[i % 5]) for pooling in POOLINGS for i, layers in enumerate(LAYERS)]


def scores_alone(model: Any, arrays: dict[str, Tensor], name: str, *, types: bool) -> Tensor:
    """The scores of inputs, each by itself and without padding, [n, 1 or C]."""
    scores, keys = [], model.keys
    for ids, mask, which in zip(*(arrays[f"{name}_{of}"] for of in ("ids", "mask", "types")), strict=True):
        named = {"token_type_ids": which[mask][None]} if types else {}
        states = model.trunk(input_ids=ids[mask][None], **named).last_hidden_state[0]
        state = {"cls": states[0], "last": states[-1], "mean": states.mean(0), "max": states.amax(0)}[keys.pooling]
        if getattr(keys, "hidden_layer", True):
            activation = getattr(keys, "hidden_activation", "tanh")
            state = getattr(F, activation)(state @ model.head[0].weight.T + model.head[0].bias)
        if getattr(keys, "hidden_norm", False):
            centred = (state - state.mean()) / (state.var(correction=0) + model.trunk.config.layer_norm_eps).sqrt()
            state = centred * model.head[2].weight + model.head[2].bias
        scores.append(state @ model.head[-1].weight.T + model.head[-1].bias)
    return torch.stack(scores)


@pytest.mark.parametrize(("pooling", "layers", "keys", "examples"), CASES)
def test_losses_and_gradients_against_one_pair_at_a_time(pooling: str, layers: Any, keys: Any, examples: Any) -> None:
    model = perturbed(cross_encoder(pooling=pooling, **layers, **keys).model(trunk()))
    assert model.kind == "pairs"
    arrays = tensors(batch := micro_batch(model.keys, examples))
    scores = scores_alone(model, arrays, "pair", types=model.keys.token_types)
    scores = scores if "classes" in keys else scores[:, 0]
    expected = plain.ranking_losses(model.keys.losses, arrays, [scores] * len(arrays["candidates"]))
    losses = model(**arrays)
    assert batch.counts.keys() == expected.keys()
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=0)  # labels are fp32
    plain.same_gradients(model, sum(losses.values()), sum(expected.values()), rtol=1e-5, atol=1e-7)


def test_the_head_has_the_dropout_of_the_encoder() -> None:
    distilbert = {"model_type": "distilbert", "vocab_size": 40, "dim": 16, "n_heads": 2, "n_layers": 1, "dropout": 0.3}
    for encoder in (trunk(hidden_dropout_prob=0.3), build_trunk(distilbert)):
        model = cross_encoder(negatives_per_query=1).model(encoder)
        (dropout,) = [part for part in model.head if isinstance(part, torch.nn.Dropout)]
        assert dropout.p == 0.3


def test_a_trunk_without_token_types_reads_pairs_without_them() -> None:
    roberta = trunk(model_type="roberta", type_vocab_size=1, max_position_embeddings=40)
    model = cross_encoder(negatives_per_query=1).model(roberta)
    assert model.double()(**tensors(micro_batch(model.keys, EXAMPLES)))["softmax"].isfinite()


DUELS = [positive(1, given=[3, 4]), positive(2, query=(30, 31, 32), given=[6, 7, 8])]
LONG = np.arange(5, 40)


class TwoSeparators(Vocabulary):
    """RoBERTa's."""

    pair_frame = ((CLS,), (SEP, SEP), (SEP,))


duobert = partial(keys_of, "duobert", max_document_tokens=8, hard_negatives=2)


def test_a_duel_is_a_query_and_two_documents_in_both_orders() -> None:
    batch = micro_batch(duobert(), DUELS[:1])
    rows = [ids[mask].tolist() for ids, mask in zip(batch.arrays["duel_ids"], batch.arrays["duel_mask"], strict=True)]
    query, relevant = [CLS, 30, 31, SEP], [6, 6, SEP]
    negatives = [[8, 8, 8, 8, SEP], [9, 9, 9, 9, 9, SEP]]
    first = [[*query, *relevant, *other] for other in negatives]
    assert sorted(rows[:2]) == first  # in the order in which the negatives are drawn
    assert sorted(rows[2:]) == sorted([*query, *other, *relevant] for other in negatives)
    assert [row[4 + 3 :] for row in rows[:2]] == [row[4:-3] for row in rows[2:]]
    assert batch.arrays["labels"].tolist() == [1, 1, 0, 0]
    assert batch.counts == {"binary": 4}
    assert batch.tokens == 2 * (2 + 2 + 4) + 2 * (2 + 2 + 5)


@pytest.mark.parametrize("length", [1, 5, 62, 200])
def test_each_document_gets_half_of_what_the_query_leaves(length: int) -> None:
    framing = MATCHING["duobert"](name="duobert", hard_negatives=1).duel_framing(VOCABULARY)
    query, long, short = np.full(length, 7), np.full(600, 8), np.full(3, 9)
    of_query = min(length, 62) + 2  # with [CLS] and [SEP]
    half = (512 - of_query) // 2  # with [SEP]
    for texts, lengths in ((long, long), (half, half)), ((short, long), (4, half)), ((long, short), (half, 4)):
        arrays = framing.arrays([query], [texts[0]], [texts[1]])
        types, ids = arrays["types"][0][arrays["mask"][0]], arrays["ids"][0][arrays["mask"][0]]
        assert np.bincount(types).tolist() == [of_query, *lengths]
        assert np.flatnonzero(ids == SEP).tolist() == (np.cumsum([of_query, *lengths]) - 1).tolist()
        assert arrays["types"][0][~arrays["mask"][0]].tolist() == [0] * int((~arrays["mask"]).sum())
    assert framing.longest == 512


def test_a_documents_own_limit_holds_too() -> None:
    framing = DuelFraming(Framing(VOCABULARY, 6), Framing(VOCABULARY, 5), 100)
    (types,) = framing.arrays([LONG], [LONG], [LONG])["types"]
    assert types.tolist() == [0] * 6 + [1] * 4 + [2] * 4
    assert framing.longest == len(types)
    query, document = framing.cut(LONG, LONG)
    assert (query.tolist(), document.tolist()) == (LONG[:4].tolist(), LONG[:3].tolist())


@pytest.mark.parametrize(("pooling", "types"), [("cls", 1), ("last", 2), ("mean", 3), ("max", 2), ("cls", 2)])
def test_loss_and_gradient_against_one_duel_at_a_time(pooling: str, types: int) -> None:
    model = perturbed(duobert(pooling=pooling).model(trunk(type_vocab_size=types)))
    assert token_types(model.trunk) == (3 if types > 1 else 1)
    assert model.kind == "duels"
    arrays = tensors(micro_batch(model.keys, DUELS))
    scores = scores_alone(model, arrays, "duel", types=types > 1)[:, 0]
    half = len(scores) // 2
    expected = F.softplus(-scores[:half]).sum() + F.softplus(scores[half:]).sum()
    loss = model(**arrays)["binary"]
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    plain.same_gradients(model, loss, expected, rtol=1e-8, atol=1e-10)


def test_the_third_type_starts_as_the_second_and_is_learned() -> None:
    encoder = trunk()
    before = encoder.embeddings.token_type_embeddings.weight.detach().clone()
    model = duobert().model(encoder).double()
    table = model.trunk.embeddings.token_type_embeddings.weight
    assert token_types(model.trunk) == model.trunk.config.type_vocab_size == 3
    torch.testing.assert_close(table, before[[0, 1, 1]], rtol=0, atol=0)
    arrays = tensors(micro_batch(model.keys, DUELS))
    model(**arrays)["binary"].backward()
    assert table.grad is not None
    assert (table.grad.abs().sum(dim=1) > 0).all()


def test_each_document_has_room_beside_all_special_tokens() -> None:
    for most, vocabulary in ((9, VOCABULARY), (11, TwoSeparators(**vars(VOCABULARY)))):
        with pytest.raises(ValueError, match=f"method.max_duel_tokens={most} leaves no room for two documents"):
            duobert(max_duel_tokens=most).check_frame(vocabulary)
        duobert(max_duel_tokens=most + 1).check_frame(vocabulary)
