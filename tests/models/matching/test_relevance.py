"""Fine-tuning's softmax over both sides of a batch against loops in fp64: what is compared with what."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepsiam.models.batching.candidates import Example
from deepsiam.models.batching.framing import arguments_of
from tests.models.matching.examples import Corpus, micro_batch, positive, siamese
from tests.models.plain import same_losses_and_gradients
from tests.models.tiny import VOCABULARY, tensors, trunk

UNKNOWN = VOCABULARY.unk
EXAMPLES = [
    positive(0, 4, query=(30, 31), given=[5, 6]),
    positive(4, 0, query=(32,), given=[7]),  # relevant to both: the first two share their documents
    positive(2, query=(30, 31), given=[3]),  # the query of the first
    positive(11, query=(33, 34), given=[0]),  # its document is a copy of 1; a hard negative is relevant to others
    positive(9, query=(5,), given=[8]),  # the query is the text of document 0
    positive(8, query=(UNKNOWN, 35), given=[1]),
]
WAYS = [{"both_directions": both, "same_side": same} for both in (False, True) for same in (False, True)]


def text_of(document: int) -> tuple[int, ...]:
    return tuple(Corpus().tokens(document).tolist())


def known(example: Example) -> set[tuple[int, ...]]:
    """The texts that are no negatives of an example's query."""
    return {tuple(example.query.tolist()), *map(text_of, example.relevant.tolist())}


def expected_losses(
    queries: list[Tensor], documents: list[Tensor], order: list[int], keys: Any, hardness: float
) -> dict[str, Tensor]:
    """Loop over all rows and what each is compared with; `order` are the numbers of the batch's documents."""
    sums = dict.fromkeys(("softmax", "reverse"), torch.zeros((), dtype=torch.float64))
    sets = list(map(known, EXAMPLES))
    for i, own in enumerate(sets):
        other_documents = [v for d, v in zip(order, documents, strict=True) if text_of(d) not in own]
        other_queries = [queries[j] for j, others in enumerate(sets) if not own & others]
        ways = {"softmax": (queries[i], documents[i], other_documents, other_queries)}
        ways["reverse"] = (documents[i], queries[i], other_queries, other_documents)
        for loss, (row, column, negatives, same_side) in ways.items():
            raw = torch.stack([row @ text for text in [column, *negatives, *(same_side if keys.same_side else [])]])
            scores = raw / keys.temperature + hardness * raw.detach() * (torch.arange(len(raw)) > 0)
            sums[loss] = sums[loss] - scores.log_softmax(0)[0]
    return sums if keys.both_directions else {"softmax": sums["softmax"]}


@pytest.mark.parametrize("hardness", [0.0, 0.7])
@pytest.mark.parametrize("negatives", ["micro_batch", "step"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_losses_and_gradients_equal_a_plain_reference(way: dict[str, bool], negatives: str, hardness: float) -> None:
    shape: dict[str, Any] = {"similarity": "cosine", "pooling": "mean", "temperature": 0.2, "hardness": hardness}
    keys = siamese(negatives=negatives, hard_negatives=1, max_query_tokens=8, **way, **shape)
    model, batch = keys.model(trunk()).double(), micro_batch(keys, EXAMPLES)
    arrays = tensors(batch)
    queries = [*model.embed_queries(**arguments_of("query_", arrays)).vectors[:, 0]]
    documents = [*model.embed_documents(**arguments_of("document_", arrays)).vectors[:, 0]]
    order = [int(e.candidates[0]) for e in EXAMPLES]
    order += [int(ids[1]) - 5 for ids in batch.arrays["document_ids"][len(EXAMPLES) :]]  # of its tokens, all equal
    expected = expected_losses(queries, documents, order, keys, hardness)
    assert keys.weights == dict.fromkeys(expected, 1 / len(expected))
    assert batch.counts == dict.fromkeys(expected, len(EXAMPLES))
    same_losses_and_gradients(model, batch, expected)


def test_beside_other_losses_of_several_widths_each_direction_counts_half() -> None:
    shape: dict[str, Any] = {"loss": {"softmax": 3.0, "kl": 1.0}, "dimensions": [16, 4], "temperature": 0.5}
    keys, plain = siamese(both_directions=True, ignore_above=0.1, **shape), siamese(**shape)
    labels, scores = np.array([1, 0, 0], np.float32), np.array([3, 1, 2], np.float32)
    scored = [
        replace(positive(i, query=(30 + i,)), candidates=np.array([i, 5, 6]), labels=labels, scores=scores * i)
        for i in range(3)
    ]
    batch, model = micro_batch(keys, scored), keys.model(trunk()).double()
    losses = model(**tensors(batch))
    weights = {"softmax": 1.5, "reverse": 1.5, "kl": 1.0, "ignored": 0.0}
    assert keys.weights == {f"{term}_{n}": weight for term, weight in weights.items() for n in (16, 4)}
    assert losses.keys() == keys.weights.keys() == batch.counts.keys()
    assert [batch.counts[f"{term}_16"] for term in weights] == [3, 3, 3, 6]  # rows of both directions may be ignored
    alone = plain.model(model.trunk).double()(**tensors(micro_batch(plain, scored)))
    for number in (16, 4):
        torch.testing.assert_close(losses[f"kl_{number}"], alone[f"kl_{number}"], rtol=1e-12, atol=0)
