"""Cross-Thought's heads, against the attention and the states of the pre-trained cross-sequence Transformer."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepsiam.models.encode import insert_special_tokens
from deepsiam.models.matching.cross_thought_heads import (
    CrossThoughtAnswers,
    CrossThoughtAnswersConfig,
    CrossThoughtPairsConfig,
)
from deepsiam.models.pretraining.cross_thought import CrossThought, CrossThoughtConfig
from deepsiam.models.vectors import Vectors
from tests.models.matching.examples import group, micro_batch, positive
from tests.models.plain import same_gradients
from tests.models.tiny import VOCABULARY, perturbed, tensors, trunk

SPECIALS = 3
SHORT: dict[str, Any] = {"special_tokens": SPECIALS, "max_query_tokens": 6, "max_document_tokens": 12}
QUESTIONS = [positive(0, 1, given=[5, 8]), positive(1, query=(30, 31, 32), given=[2, 3]), positive(2, given=[7, 8])]
CLASSES = [group({3: 2.0}), group({4: 0.0}, query=(30,)), group({6: 1.0}, query=(33, 32, 31, 30))]


ANSWERS = CrossThoughtAnswersConfig(name="cross_thought_answers", hard_negatives=2, **SHORT)
PAIRS = CrossThoughtPairsConfig(name="cross_thought_pairs", classes=3, **SHORT)


def pretrained() -> CrossThought:
    keys = CrossThoughtConfig(name="cross_thought", special_tokens=SPECIALS)
    return perturbed(CrossThought(trunk(vocab_size=VOCABULARY.vocab_size + SPECIALS - 1), keys))


def answers(start: CrossThought) -> CrossThoughtAnswers:
    """Build a model that shares the parameters of a pre-trained one."""
    model = ANSWERS.model(start.trunk).double()
    layer = start.cross.attention
    model.cross.attention = nn.ModuleDict({"query": layer.query, "key_value": layer.key_value})
    return model


def sequences(model: CrossThought, *texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Turn texts (rows of ids) into one example as the pre-trained model reads it: ids, mask, offset."""
    width = max(len(text) for text in texts)
    ids = torch.stack([F.pad(text, (0, width - len(text)), value=VOCABULARY.pad) for text in texts])
    longer, mask = insert_special_tokens(model.trunk, ids, ids != VOCABULARY.pad, SPECIALS - 1)
    return longer[None], mask[None], torch.zeros(1, dtype=torch.int64)


def test_the_loss_of_answers_is_the_mean_attention_of_the_pre_trained_layer() -> None:
    start = pretrained()
    model = answers(start)
    arrays = tensors(micro_batch(model.keys, QUESTIONS))
    expected = torch.zeros((), dtype=torch.float64)
    for question, own in zip(arrays["query_ids"], arrays["candidates"], strict=True):
        alpha = start.attention(*sequences(start, question, *arrays["document_ids"][own]))  # [1, heads, N, M, M]
        expected = expected - alpha[0, :, :, 0, 1].mean().log()
    loss = model(**arrays)["softmax"]
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    same_gradients([*start.trunk.parameters(), *start.cross.attention.parameters()], loss, expected)


def test_the_attention_to_passages_in_any_order_and_to_the_question_itself_sums_to_1() -> None:
    start = pretrained()
    model = answers(start)
    arrays = tensors(micro_batch(model.keys, QUESTIONS))
    with torch.no_grad():
        questions = model.embed_queries(arrays["query_ids"], arrays["query_mask"])
        passages = model.embed_documents(arrays["document_ids"][:6], arrays["document_mask"][:6])
        scores = model.score(questions, passages)
        order = [3, 0, 5, 1, 2, 4]
        permuted = model.score(questions, Vectors(passages.vectors[order], passages.mask[order]))
        torch.testing.assert_close(permuted, scores[:, order], rtol=0, atol=1e-12)
        to_passages = scores.exp().sum(dim=1)
        for i, question in enumerate(arrays["query_ids"]):
            alpha = start.attention(*sequences(start, question, *arrays["document_ids"][:6]))
            torch.testing.assert_close(to_passages[i], 1 - alpha[0, :, :, 0, 0].mean(), rtol=0, atol=1e-12)
    assert (to_passages < 1 - 1e-6).all()
    assert model.kind == "lists"


def test_a_passage_that_is_not_there_gets_no_attention() -> None:
    model = answers(pretrained())
    arrays = tensors(micro_batch(model.keys, QUESTIONS))
    expected = model(**arrays)["softmax"]
    filled = {**arrays, "candidates": F.pad(arrays["candidates"], (0, 2), value=-1)}
    loss = model(**filled)["softmax"]
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_classes_of_pairs_are_told_by_the_states_that_have_attended_to_each_other() -> None:
    start = pretrained()
    model = perturbed(PAIRS.model(start.trunk))
    model.cross = start.cross
    assert model.kind == "pairs"
    arrays = tensors(micro_batch(model.keys, CLASSES))
    logits, expected = [], torch.zeros((), dtype=torch.float64)
    for ids, (label,) in zip(arrays["pair_ids"], arrays["labels"], strict=True):
        read, mask, offset = sequences(start, *ids)
        crossed = start.across(start.encode(read, mask, offset), mask)[0]  # [2, N, H]
        flat = torch.cat([crossed[m, n] for n in range(SPECIALS) for m in range(2)])
        logits.append(model.head.weight @ flat + model.head.bias)
        expected = expected - logits[-1].log_softmax(0)[int(label)]
    loss = model(**arrays)["classes"]
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    same_gradients(model, loss, expected)
    scores = model.score_pairs(*(arrays[f"pair_{name}"] for name in ("ids", "mask", "types")))
    torch.testing.assert_close(scores, torch.stack(logits), rtol=0, atol=1e-10)
    swapped = model.score_pairs(*(arrays[f"pair_{name}"].flip(1) for name in ("ids", "mask", "types")))
    assert (scores - swapped).abs().min() > 1e-6  # the released code's mean over the two texts would hide their order


def test_pairs_are_framed_as_two_sequences() -> None:
    arrays, counts, tokens = micro_batch(PAIRS, CLASSES[:2])
    assert arrays["pair_ids"].shape == (2, 2, 8)
    ids, masks = (arrays[name].reshape(4, 8) for name in ("pair_ids", "pair_mask"))
    rows = [row[mask].tolist() for row, mask in zip(ids, masks, strict=True)]
    assert rows == [[2, 30, 31, 3], [2, 8, 8, 8, 8, 3], [2, 30, 3], [2, 9, 9, 9, 9, 9, 3]]
    assert arrays["pair_types"].sum(2).tolist() == [[0, 6], [0, 7]]
    assert counts == {"classes": 2}
    assert tokens == 2 + 4 + 1 + 5
