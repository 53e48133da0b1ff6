"""`hardness` and `spread` in fine-tuning, against plain loops in fp64."""

from typing import Any

import pytest
import torch

from deepsiam.models.batching.framing import arguments_of
from deepsiam.models.matching.siamese import Siamese
from tests.models.matching.examples import micro_batch, positive, siamese
from tests.models.plain import same_losses_and_gradients
from tests.models.tiny import tensors, trunk

EXAMPLES = [
    positive(0, given=[4, 5]),
    positive(1, query=(7, 30), given=[6, 2]),
    positive(2, 3, query=(31, 8), given=[9, 8]),
    positive(3, 2, query=(9, 9), given=[0, 7]),  # document 2 is relevant to it, too
]


@pytest.mark.parametrize("negatives", ["micro_batch", "step"])
def test_losses_and_every_gradient_equal_a_plain_reference(negatives: str) -> None:
    keys = siamese(
        negatives=negatives,
        hard_negatives=2,
        pooling="mean",
        similarity="cosine",
        temperature=0.2,
        hardness=3.0,
        spread=0.4,
    )
    model, batch = Siamese(trunk(), keys).double(), micro_batch(keys, EXAMPLES)
    arrays = tensors(batch)
    queries = model.embed_queries(**arguments_of("query_", arrays)).vectors[:, 0]
    documents = model.embed_documents(**arguments_of("document_", arrays)).vectors[:, 0]
    texts = [
        tuple(ids[mask].tolist()) for ids, mask in zip(arrays["document_ids"], arrays["document_mask"], strict=True)
    ]
    softmax = torch.zeros((), dtype=torch.float64)
    for query, own, example in zip(queries, arrays["candidates"][:, 0].tolist(), EXAMPLES, strict=True):
        known = [i for i, other in enumerate(EXAMPLES) if other.candidates[0] in example.relevant]
        relevant = {texts[column] for column in arrays["candidates"][known, 0].tolist()}
        total = (query @ documents[own] / 0.2).exp()
        for document, text in zip(documents, texts, strict=True):
            if text not in relevant:
                score = query @ document
                total = total + (3.0 * score.detach()).exp() * (score / 0.2).exp()
        softmax = softmax + total.log() - query @ documents[own] / 0.2
    expected = {"softmax": softmax}
    for term, vectors in {"query_spread": queries, "document_spread": documents}.items():
        numbers = range(len(vectors))
        squares = [(vectors[i] @ vectors[j]) ** 2 for i in numbers for j in numbers if i != j]
        expected[term] = torch.stack(squares).sum() / (len(vectors) - 1)
    assert batch.counts == {"softmax": 4, "query_spread": 4, "document_spread": len(documents)}
    assert keys.weights == {"softmax": 1.0, "query_spread": 0.4, "document_spread": 0.4}
    assert keys.spans_step
    same_losses_and_gradients(model, batch, expected)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"hardness": 1.0, "negatives": "own", "hard_negatives": 1},
            "method.hardness weighs the negatives of",
        ),
        ({"hardness": 1.0, "learn_temperature": True}, "method.hardness is for scores before the temperature"),
        ({"ignore_above": 0.0, "learn_temperature": True}, "method.ignore_above is for scores before the temperature"),
        ({"spread": 0.1, "learn_temperature": True}, "method.spread compares texts by one vector each, as they are"),
    ],
)
def test_what_does_not_suit_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        siamese(**keys)


def test_recipes_of_before_have_the_same_hash() -> None:
    assert not siamese().model_dump().keys() & {"hardness", "spread"}
