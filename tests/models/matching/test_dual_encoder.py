"""The batches and the losses that all dual encoders share."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepsiam.models.batching.candidates import Example
from deepsiam.models.matching.dual_encoder import IN_BATCH
from deepsiam.models.matching.siamese import Siamese
from tests.models import plain
from tests.models.matching.examples import group, micro_batch, positive, siamese
from tests.models.plain import same_gradients
from tests.models.tiny import tensors, trunk

EXAMPLES = [positive(0, 1), positive(1), positive(2, 0), positive(1, 3)]


def test_relevant_documents_and_copies_of_them_are_not_allowed() -> None:
    arrays, counts, tokens = micro_batch(siamese(), [*EXAMPLES, positive(10)])  # 10 is a copy of 0
    assert counts == {"softmax": 5}
    assert tokens == 5 * 2 + (1 + 2 + 3 + 2 + 1)
    assert arrays["candidates"].tolist() == [[0], [1], [2], [3], [4]]
    assert arrays["allowed"].astype(int).tolist() == [  # documents 0, 1, 2, 1, 10
        [1, 0, 1, 0, 0],
        [1, 1, 1, 0, 1],
        [0, 1, 1, 1, 0],
        [1, 0, 1, 1, 1],
        [0, 1, 1, 1, 1],
    ]


def test_a_document_that_is_the_querys_own_text_is_not_allowed() -> None:
    """A pair and its mirror image: each query is the other one's document."""
    examples = [positive(1, query=[7, 7, 7]), positive(2, query=[6, 6]), positive(11, query=[])]
    arrays = micro_batch(siamese(), examples).arrays
    assert arrays["allowed"].astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    keys = micro_batch(siamese(negatives="step"), examples).arrays
    never = keys["document_keys"] == keys["relevant_keys"][:, :, None]  # [Q, r, D]
    np.testing.assert_array_equal(~never.any(axis=1) | np.eye(3, dtype=bool), arrays["allowed"])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=4)), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_a_negative_is_never_relevant(pairs: list[tuple[int, set[int]]], n: int) -> None:
    examples = [positive(document, *relevant) for document, relevant in pairs]
    arrays = micro_batch(siamese(loss="hinge", negatives_per_query=n), examples, range(12)).arrays
    numbers = arrays["document_ids"][:, 1] - 5  # a copy has the number of its original
    assert numbers[: len(pairs)].tolist() == [document for document, _ in pairs]
    assert arrays["candidates"].shape == (len(pairs), 1 + n)
    for example, columns in zip(examples, arrays["candidates"], strict=True):
        assert numbers[columns[0]] == example.candidates[0]
        assert not {int(numbers[i]) for i in columns[1:]} & set(example.relevant.tolist())


def test_groups_have_all_their_candidates_with_their_labels() -> None:
    examples = [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0})]
    arrays, counts, _ = micro_batch(siamese(loss="kl"), examples)
    assert (arrays["document_ids"][:, 1] - 5).tolist() == [3, 6, 4, 5]
    assert arrays["candidates"].tolist() == [[0, 2, 3], [1, -1, -1]]
    assert arrays["labels"].tolist() == [[0.5, -1.0, 2.0], [1.0, 0.0, 0.0]]
    assert counts == {"kl": 2}
    assert micro_batch(siamese(loss="binary"), examples).counts == {"binary": 4}


def by_hand(model: Siamese, losses: Iterable[str], arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The losses in loops, one text at a time."""
    queries, documents = (
        torch.stack([F.normalize(states.mean(0), dim=0) for states in plain.states_alone(model.trunk, arrays, side)])
        for side in ("query", "document")
    )
    scores, ignored = queries @ documents.T, {}
    if model.keys.ignore_above is not None:  # cosines decide, not what the temperature makes of them
        highest = scores.gather(1, arrays["candidates"][:, :1]) + model.keys.ignore_above
        left = arrays["allowed"] & (scores <= highest)
        ignored = {"ignored": (1 - (left.sum(1) - 1) / (arrays["allowed"].sum(1) - 1)).sum()}
        arrays = {**arrays, "allowed": left}
    return plain.ranking_losses(losses, arrays, [*(scores / 0.3)]) | ignored


GROUPS = [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0, 2: 0.25})]
SCORED = [
    replace(positive(0, 1, given=[5, 8, 3]), scores=np.array([1.5, 2.0, -1.0, 0.5], np.float32)),
    replace(positive(1, given=[2, 10], query=(7, 30)), scores=np.array([0.5, 0.0, 3.0], np.float32)),
    replace(positive(2, given=[0], query=(8,)), scores=np.array([3.0, 2.5], np.float32)),
]


LOSSES: list[tuple[dict[str, Any], list[Example]]] = [
    ({"loss": "softmax"}, EXAMPLES),
    ({"loss": "softmax", "negatives_per_query": 2}, EXAMPLES),
    ({"loss": "softmax", "negatives_per_query": 2, "negatives": "own"}, EXAMPLES),
    ({"loss": "hinge", "negatives_per_query": 2}, EXAMPLES),
    ({"loss": "hinge", "negatives": "micro_batch"}, EXAMPLES),
    ({"loss": "hinge", "negatives_per_query": 2, "negatives": "micro_batch"}, EXAMPLES),
    ({"loss": "binary", "negatives_per_query": 2}, EXAMPLES),
    ({"loss": "binary"}, GROUPS),
    ({"loss": "kl"}, GROUPS),
    ({"loss": "margin_mse"}, GROUPS),
    ({"loss": {"kl": 0.99, "margin_mse": 0.05}, "teacher_scale": "min_max"}, GROUPS),
    ({"loss": {"softmax": 1.0, "kl": 0.5}}, SCORED),
    ({"loss": {"softmax": 2.0, "margin_mse": 0.05}, "negatives": "own"}, SCORED),
    ({"loss": {"kl": 0.3, "hinge": 1.5}, "negatives": "micro_batch", "teacher_scale": "min_max"}, SCORED),
    ({"loss": {"binary": 1.0, "kl": 0.25, "softmax": 0.5}, "candidates": {"per_query": 3}}, SCORED),
    ({"loss": {"softmax": 0.5, "hinge": 1.0}, "negatives_per_query": 2}, EXAMPLES),
]
KINDS = {"fixed temperature": {}, "learnt": {"learn_temperature": True}, "ignoring": {"ignore_above": 0.01}}
CASES = [("learnt" if i % 2 else "fixed temperature", *losses) for i, losses in enumerate(LOSSES)]
CASES += [("ignoring", *losses) for losses in LOSSES if siamese(**losses[0]).has_batch_negatives]


@pytest.mark.parametrize(("kind", "keys", "examples"), CASES)
def test_losses_and_the_gradient_of_their_sum_against_loops(kind: str, keys, examples) -> None:
    shape = {"pooling": "mean", "similarity": "cosine", "temperature": 0.3, **KINDS[kind]}
    model = Siamese(trunk(), siamese(**shape, **keys)).double()
    arrays = tensors(batch := micro_batch(model.keys, examples))
    weights = keys["loss"] if isinstance(keys["loss"], dict) else {keys["loss"]: 1.0}
    ours, expected = model(**arrays), by_hand(model, weights, arrays)
    weights = {**weights, **({"ignored": 0.0} if kind == "ignoring" else {})}
    assert ours.keys() == batch.counts.keys()
    assert model.keys.weights == weights
    assert kind != "ignoring" or expected["ignored"] > 0
    for loss, value in expected.items():
        # labels, scores and shares are fp32
        torch.testing.assert_close(ours[loss], value, rtol=1e-6, atol=0, check_dtype=loss != "ignored")
    sums = [sum(weight * each[loss] for loss, weight in weights.items()) for each in (ours, expected)]
    same_gradients(model.trunk, *sums, rtol=1e-5, atol=1e-7)
    if kind == "learnt":
        (slope,) = torch.autograd.grad(sums[0], [model.log_temperature])
        assert slope.abs() > 1e-6


def test_scored_candidates_of_a_positive_have_no_copy_of_what_is_relevant() -> None:
    """Document 10 is a copy of 0, which is relevant to the first query, and 3 is drawn for neither."""
    keys = siamese(loss={"softmax": 1.0, "kl": 1.0, "binary": 1.0})
    examples = [
        replace(positive(0, given=[10, 4]), scores=np.array([1, 2, 3], np.float32)),
        replace(positive(1, given=[5, 6]), scores=np.array([4, 5, 6], np.float32)),
    ]
    arrays, counts, _ = micro_batch(keys, examples)
    assert (arrays["document_ids"][:, 1] - 5).tolist() == [0, 1, 4, 5, 6]
    assert arrays["candidates"].tolist() == [[0, 2, -1], [1, 3, 4]]
    assert arrays["labels"].tolist() == [[1, 0, 0], [1, 0, 0]]
    assert arrays["scores"].tolist() == [[1, 3, 0], [4, 5, 6]]
    assert counts == {"softmax": 2, "kl": 2, "binary": 5}
    scaled = micro_batch(siamese(loss="kl", teacher_scale="min_max"), examples).arrays["scores"]
    assert scaled.tolist() == [[0, 0.5, 1], [0, 0.5, 1]]  # a group keeps the copy


@pytest.mark.parametrize("loss", [*IN_BATCH, {"hinge": 1.0, "softmax": 0.5, "kl": 0.5}])
def test_negatives_of_the_step_are_those_of_the_micro_batch_where_it_is_the_whole_step(loss) -> None:
    losses = []
    for negatives in ("micro_batch", "step"):
        model = Siamese(trunk(), siamese(loss=loss, negatives=negatives, pooling="mean")).double()
        arrays = tensors(micro_batch(model.keys, [*EXAMPLES, positive(10, given=[4, 5])]))
        assert ("allowed" in arrays) == (negatives == "micro_batch")
        losses.append(model(**arrays))
    torch.testing.assert_close(*losses, rtol=0, atol=1e-12)
