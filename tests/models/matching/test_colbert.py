"""ColBERT: markers, augmented queries and punctuation; MaxSim against loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.matching.colbert import Colbert
from tests.models import plain
from tests.models.matching.examples import keys_of, micro_batch, positive
from tests.models.tiny import VOCABULARY as SPELLED
from tests.models.tiny import tensors, trunk


class Punctuated(Vocabulary):
    """A vocabulary in which token 6 is punctuation: document 1 of the corpus has nothing else."""

    punctuation = (6,)  # type: ignore[assignment]


VOCABULARY = Punctuated(vocab_size=40, pad=0, unk=1, cls=2, sep=3, mask=4)
CLS, SEP, PAD, MASK, Q, D = 2, 3, 0, 4, 40, 41
EXAMPLES = [
    positive(0, 1, query=range(10, 20)),
    positive(1, query=[7]),
    positive(2, 0, query=range(20, 24)),
    positive(1, 3),
]
keys = partial(keys_of, "colbert", max_query_tokens=9, dimension=6)


def colbert(**changed: Any) -> Colbert:
    torch.manual_seed(0)
    return Colbert(trunk(vocab_size=42), keys(**changed)).double()


def texts(*ids: list[int]) -> list[np.ndarray]:
    return [np.array(text, np.uint16) for text in ids]


def test_queries_are_marked_and_filled_up_with_masks() -> None:
    arrays = keys(max_query_tokens=7).query_framing(VOCABULARY).arrays(texts([], [8], [8, 6, 9, 10, 11]))
    assert arrays["ids"].tolist() == [
        [CLS, Q, SEP, MASK, MASK, MASK, MASK],
        [CLS, Q, 8, SEP, MASK, MASK, MASK],
        [CLS, Q, 8, 6, 9, 10, SEP],
    ]
    assert arrays["mask"].all()
    end = keys(max_query_tokens=7, kept_of_query="end").query_framing(VOCABULARY)
    assert end.arrays(texts([8, 6, 9, 10, 11]))["ids"].tolist() == [[CLS, Q, 6, 9, 10, 11, SEP]]
    assert end.cut(np.arange(8, 13)).tolist() == [9, 10, 11, 12]


def test_documents_are_marked_and_their_punctuation_is_not_kept() -> None:
    arrays = keys(max_document_tokens=7).document_framing(VOCABULARY).arrays(texts([6, 6], [8, 6, 9, 10, 11]))
    assert arrays["ids"].tolist() == [[CLS, D, 6, 6, SEP, PAD, PAD], [CLS, D, 8, 6, 9, 10, SEP]]
    assert arrays["mask"].sum(1).tolist() == [5, 7]
    assert arrays["kept"].astype(int).tolist() == [[1, 1, 0, 0, 1, 0, 0], [1, 1, 1, 0, 1, 1, 1]]
    plain = keys().document_framing(Vocabulary(40, PAD, 1, CLS, SEP, MASK)).arrays(texts([6, 6]))
    assert (plain["kept"] == plain["mask"]).all()  # this vocabulary has no punctuation


def scores_of(model: Colbert, arrays: dict[str, Tensor]) -> Tensor:
    """Compute the score of each query with each document, pair by pair."""
    queries, documents = (
        [[F.normalize(model.projection.weight @ state, dim=0) for state in states] for states in texts]
        for texts in (plain.states_alone(model.tower(side), arrays, side) for side in ("query", "document"))
    )
    rows = []
    for query in queries:
        row = []
        for document, ids in zip(documents, arrays["document_ids"], strict=True):
            kept = [vector for vector, token in zip(document, ids.tolist(), strict=False) if token != 6]
            row.append(sum(torch.stack([q @ d for d in kept]).max() for q in query))
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"towers": 2, "temperature": 0.3},
        {"negatives": "own", "negatives_per_query": 1},  # the paper's pairs
        {"negatives": "own", "negatives_per_query": 3},
    ],
)
def test_loss_scores_and_gradient_against_loops(changed: dict[str, Any]) -> None:
    model = colbert(**changed)
    arrays = tensors(micro_batch(model.keys, EXAMPLES, vocabulary=VOCABULARY))
    assert ("allowed" in arrays) == (model.keys.negatives != "own")
    loss = plain.same_scores_loss_and_gradients(model, arrays, scores_of(model, arrays))
    embedding = model.trunk.get_input_embeddings().weight
    slopes = torch.autograd.grad(loss, embedding)[0].abs().amax(dim=1)
    assert slopes[MASK] > 1e-6  # the [MASK]s of queries have an effect
    assert (slopes[[Q, D]] > 1e-6).tolist() == [True, "towers" not in changed]


def test_a_prompt_comes_after_the_marker() -> None:
    prompts = keys(max_query_tokens=9, max_document_tokens=9, query_prompt="ab", document_prompt="c")
    queries = prompts.query_framing(SPELLED).arrays(texts([8, 6, 9, 10, 11]))
    assert queries["ids"].tolist() == [[CLS, SPELLED.vocab_size, 7, 8, 8, 6, 9, 10, SEP]]
    documents = prompts.document_framing(SPELLED).arrays(texts([8]))
    assert documents["ids"][documents["mask"]].tolist() == [CLS, SPELLED.vocab_size + 1, 9, 8, SEP]
    with pytest.raises(ValueError, match="query_prompt has 2 tokens, which leave a text no room: with the 3 around it"):
        keys(max_query_tokens=5, query_prompt="ab").query_framing(SPELLED)
    assert keys(max_query_tokens=6, query_prompt="ab").query_framing(SPELLED).room == 1
