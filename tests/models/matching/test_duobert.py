"""duoBERT: duels, their token types and lengths, and the loss, against one duel at a time."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.framing import DuelFraming, Framing
from deepsiam.models.matching.duobert import DuobertConfig
from deepsiam.models.trunk import token_types
from tests.models import plain
from tests.models.matching.examples import micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk

CLS, SEP = VOCABULARY.cls, VOCABULARY.sep
EXAMPLES = [positive(1, given=[3, 4]), positive(2, query=(30, 31, 32), given=[6, 7, 8])]
LONG = np.arange(5, 40)


class TwoSeparators(Vocabulary):
    """RoBERTa's."""

    pair_frame = ((CLS,), (SEP, SEP), (SEP,))


def config(**keys: Any) -> DuobertConfig:
    short = {"max_query_tokens": 6, "max_document_tokens": 8, "hard_negatives": 2}
    return DuobertConfig.model_validate({"name": "duobert", **short, **keys})


def test_a_duel_is_a_query_and_two_documents_in_both_orders() -> None:
    batch = micro_batch(config(), EXAMPLES[:1])
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
    framing = DuobertConfig(name="duobert", hard_negatives=1).duel_framing(VOCABULARY)
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
    model = perturbed(config(pooling=pooling).model(trunk(type_vocab_size=types)))
    assert token_types(model.trunk) == (3 if types > 1 else 1)
    assert model.kind == "duels"
    arrays = tensors(micro_batch(model.keys, EXAMPLES))
    states = []
    for ids, mask, which in zip(arrays["duel_ids"], arrays["duel_mask"], arrays["duel_types"], strict=True):
        named = {"token_type_ids": which[mask][None]} if types > 1 else {}
        states.append(model.trunk(input_ids=ids[mask][None], **named).last_hidden_state[0])
    scores = plain.scores_of_heads(model, states)[:, 0]
    half = len(scores) // 2
    expected = F.softplus(-scores[:half]).sum() + F.softplus(scores[half:]).sum()
    loss = model(**arrays)["binary"]
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    plain.same_gradients(model, loss, expected, rtol=1e-8, atol=1e-10)


def test_the_third_type_starts_as_the_second_and_is_learned() -> None:
    encoder = trunk()
    before = encoder.embeddings.token_type_embeddings.weight.detach().clone()
    model = config().model(encoder).double()
    table = model.trunk.embeddings.token_type_embeddings.weight
    assert token_types(model.trunk) == model.trunk.config.type_vocab_size == 3
    torch.testing.assert_close(table, before[[0, 1, 1]], rtol=0, atol=0)
    arrays = tensors(micro_batch(model.keys, EXAMPLES))
    model(**arrays)["binary"].backward()
    assert table.grad is not None
    assert (table.grad.abs().sum(dim=1) > 0).all()


def test_each_document_has_room_beside_all_special_tokens() -> None:
    for most, vocabulary in ((9, VOCABULARY), (11, TwoSeparators(**vars(VOCABULARY)))):
        with pytest.raises(ValueError, match=f"method.max_duel_tokens={most} leaves no room for two documents"):
            config(max_duel_tokens=most).check_frame(vocabulary)
        config(max_duel_tokens=most + 1).check_frame(vocabulary)
