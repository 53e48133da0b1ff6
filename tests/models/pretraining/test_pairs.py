"""Contrastive pre-training on pairs: what is compared with what, and the losses against a plain reference in fp64."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepsiam.models.batching.framing import arguments_of
from deepsiam.models.config import resize_embeddings
from deepsiam.models.pretraining.pairs import PairsConfig
from tests.models.plain import same_losses_and_gradients, states_alone
from tests.models.tiny import MAX_TOKENS, VOCABULARY, Text, rngs, tensors, trunk

WAYS = [{"both_directions": both, "same_side": same} for both in (False, True) for same in (False, True)]
SHAPE = {"similarity": "cosine", "temperature": 0.1, "pooling": "mean"}


def config(**keys: Any) -> PairsConfig:
    return PairsConfig(name="pairs", **{"max_query_tokens": 8, "max_document_tokens": MAX_TOKENS, **keys})


def pair(query: list[int], document: list[int], group: str = "") -> Text:
    return Text([np.array(query, np.uint16), np.array(document, np.uint16)], group=group)


TEXTS = [
    pair([5, 6, 7], [8, 9, 10, 11], "page"),
    pair([12, 13], [14, 15, 16], "page"),  # of the same group as the first
    pair([5, 6, 7], [17, 18], "other"),  # the query of the first
    pair([19, 20], [8, 9, 10, 11], "third"),  # the document of the first
    pair([14, 15, 16], [21, 22, 23]),  # its query is the document of the second
    pair([24, 25, 26, 27], [28]),
    pair([29], [30, 31, 32]),
]
SHARED = {(0, 1), (0, 2), (0, 3), (1, 4)}  # pairs that share a text or a group, and are not each other's negatives


def batch_of(keys: PairsConfig, texts: list[Text]) -> Any:
    batcher = keys.batcher(VOCABULARY)
    examples = batcher.examples(texts)
    return batcher.micro_batch(examples, rngs(len(examples)))


def expected_losses(keys: PairsConfig, queries: list[Tensor], documents: list[Tensor]) -> dict[str, Tensor]:
    """-log of exp(s(row, own) / t) over the sum for all texts that the row is compared with, in plain loops."""
    losses = {}
    for loss, rows, columns in (("pairs", queries, documents), ("reverse", documents, queries)):
        total = torch.zeros((), dtype=torch.float64)
        for i, row in enumerate(rows):
            others = [j for j in range(len(rows)) if j != i and not {(i, j), (j, i)} & SHARED]
            among = [columns[i], *(columns[j] for j in others)]
            among += [rows[j] for j in others] if keys.same_side else []
            scores = torch.stack([row @ text for text in among]) / keys.temperature
            total = total + scores.logsumexp(0) - scores[0]
        losses[loss] = total
    return losses if keys.both_directions else {"pairs": losses["pairs"]}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("negatives", "shape"), [("micro_batch", SHAPE), ("step", SHAPE), ("step", {})], ids=["cosine", "step", "dot"]
)
def test_losses_and_every_gradient_equal_a_plain_reference(
    way: dict[str, bool], negatives: str, shape: dict[str, Any]
) -> None:
    """The batch of a step and of a micro-batch are one here: `test_grad_cache` splits it."""
    keys = config(negatives=negatives, **way, **shape)
    model, batch = keys.model(trunk()).double(), batch_of(keys, TEXTS)

    def vector(states: Tensor) -> Tensor:
        pooled = states.mean(dim=0) if keys.pooling == "mean" else states[0]
        return pooled / pooled.norm() if keys.similarity == "cosine" else pooled

    queries, documents = (
        [vector(states) for states in states_alone(model.trunk, tensors(batch), side)] for side in ("query", "document")
    )
    expected = expected_losses(keys, queries, documents)
    assert batch.counts == dict.fromkeys(expected, len(TEXTS))
    same_losses_and_gradients(model, batch, expected)


def max_sim(query: Tensor, document: Tensor) -> Tensor:
    """Add up, for each vector of a query [m, H], the largest product with one of a document's [k, H]."""
    return torch.stack([torch.stack([q @ d for d in document]).max() for q in query]).sum()


@pytest.mark.parametrize("negatives", ["micro_batch", "step"])
@pytest.mark.parametrize(
    "score",
    [
        {"name": "colbert", "dimension": 6},
        {"name": "sparse", "regularise": {"query": {"l1": 0.1}, "document": {"flops": 0.2}}},
        {"name": "siamese", "towers": 2, "learn_temperature": True},
        {"name": "siamese", "hardness": 0.4, "spread": 0.3},
    ],
    ids=["colbert", "sparse", "learnt temperature", "hardness and spread"],
)
def test_every_network_s_losses_and_gradients_equal_a_plain_reference(score: dict[str, Any], negatives: str) -> None:
    keys = config(negatives=negatives, temperature=0.5, score=score)
    start = trunk()
    resize_embeddings(keys, start, VOCABULARY)
    model, batch = keys.model(start).double(), batch_of(keys, TEXTS)
    queries, documents = (
        [texts.vectors[i][texts.mask[i]] for i in range(len(TEXTS))]
        for texts in (
            model.embed_queries(**arguments_of("query_", tensors(batch))),
            model.embed_documents(**arguments_of("document_", tensors(batch))),
        )
    )
    temperature = model.log_temperature.exp() if "learn_temperature" in score else torch.tensor(0.5)
    expected = torch.zeros((), dtype=torch.float64)
    for i, query in enumerate(queries):
        others = [j for j in range(len(documents)) if j != i and not {(i, j), (j, i)} & SHARED]
        among = [documents[i], *(documents[j] for j in others)]
        raw = torch.stack([max_sim(query, document) for document in among])
        weights = (score.get("hardness", 0.0) * raw.detach()).exp()  # of a negative: exp(hardness x its score)
        scores = raw / temperature
        all_terms = torch.cat([scores[:1].exp(), weights[1:] * scores[1:].exp()])
        expected = expected + all_terms.sum().log() - scores[0]
    terms = {"pairs": expected}
    if "spread" in score:
        for term, texts in {"query_spread": queries, "document_spread": documents}.items():
            others = [(v, w) for v in texts for w in texts if v is not w]
            terms[term] = sum((v[0] @ w[0]) ** 2 for v, w in others) / (len(texts) - 1)
    if score["name"] == "sparse":
        means = torch.cat(documents).mean(dim=0)
        terms |= {"query_l1": torch.cat(queries).sum(), "document_flops": len(documents) * (means**2).sum()}
        assert keys.weights == {"pairs": 1.0, "query_l1": 0.1, "document_flops": 0.2}
        assert keys.weights_at(24_999)["query_l1"] == pytest.approx(0.1 / 4)  # the ramp of 50,000 steps is quadratic
        assert keys.spans_step
    assert batch.counts == dict.fromkeys(terms, len(TEXTS))
    same_losses_and_gradients(model, batch, terms)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"score": "colbert", "pooling": "mean"}, "method.pooling is for method.score=siamese, not colbert"),
        (
            {"score": "sparse", "both_directions": True},
            "method.both_directions is for method.score=siamese",
        ),
        ({"score": {"name": "sparse", "max_query_tokens": 9}}, "method.score.max_query_tokens: write it as method.max"),
        ({"score": {"name": "colbert", "loss": "kl"}}, "method.score: a pair has one loss, over the batch's documents"),
        ({"score": {"name": "colbert", "hard_negatives": 1}}, "method.score: a pair has one loss"),
        ({"score": {"name": "siamese", "both_directions": True}}, "write it as method.both_directions"),
        ({"score": {"name": "siamese", "dimensions": [8]}}, "method.score: a pair has one loss"),
        (
            {"score": {"name": "siamese", "spread": 0.1}, "same_side": True},
            "method.both_directions and method.same_side compare texts by one vector each, and no side by itself",
        ),
        ({"score": {"name": "siamese", "hardness": 1.0, "learn_temperature": True}}, "method.hardness is for scores"),
        ({"score": {"name": "siamese", "spread": 1.0, "document_chunks": 2}}, "method.spread compares texts by one"),
        ({"score": "bm25"}, "expected tags: 'siamese', 'colbert', 'sparse'"),
    ],
)
def test_a_network_that_pairs_cannot_train_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        config(**keys)


@pytest.mark.parametrize("score", [{"name": "colbert", "dimension": 6}, {"name": "sparse", "query": "tokens"}])
def test_a_saved_recipe_has_the_same_network(score: dict[str, Any]) -> None:
    keys = config(score=score, query_prompt="" if score["name"] == "sparse" else "q: ", temperature=0.5)
    assert PairsConfig.model_validate(keys.model_dump(mode="json")).ranking_config == keys.ranking_config
    assert keys.model_dump(exclude_unset=True)["score"] == score
    assert "score" not in config().model_dump()


@given(st.lists(st.tuples(*[st.integers(5, 8)] * 2, st.sampled_from(["", "a", "b"])), min_size=1, max_size=7))
def test_pairs_that_share_a_text_or_a_group_are_no_negatives(chosen: list[tuple[int, int, str]]) -> None:
    texts = [pair([query], [document], group) for query, document, group in chosen]
    allowed = batch_of(config(), texts).arrays["allowed"]
    for i, (query, document, group) in enumerate(chosen):
        for j, (other, others, theirs) in enumerate(chosen):
            shares = bool({query, document} & {other, others}) or (group == theirs != "")
            assert allowed[i, j] == (i == j or not shares)


def test_a_document_of_other_than_two_segments_is_refused() -> None:
    batcher = config().batcher(VOCABULARY)
    for number in (0, 1, 3):
        with pytest.raises(ValueError, match=f"a document has {number} segments, not two.*`data_prep pairs`"):
            batcher.examples([TEXTS[0], Text([np.array([5])] * number)])


def test_a_pair_without_text_on_one_side_gives_no_example() -> None:
    batcher = config().batcher(VOCABULARY)
    texts = [pair([], [5]), TEXTS[5], pair([5], []), TEXTS[6]]
    assert batcher.origins(texts) == [[1], [3]]
    assert [example.query.tolist() for example in batcher.examples(texts)] == [[24, 25, 26, 27], [29]]


def test_long_texts_lose_their_end_and_prompts_come_first() -> None:
    keys = config(query_prompt="ab", pooling="mean", prompt_in_pooling=False)
    arrays = batch_of(keys, [pair([*range(5, 25)], [*range(5, 40)])]).arrays
    cls, sep = VOCABULARY.cls, VOCABULARY.sep
    assert arrays["query_ids"].tolist() == [[cls, 7, 8, *range(5, 9), sep]]  # a, b: 7, 8
    assert arrays["query_kept"].tolist() == [[False] * 3 + [True] * 5]
    assert arrays["document_ids"].tolist() == [[cls, *range(5, 3 + MAX_TOKENS), sep]]


def test_the_network_is_that_of_fine_tuning() -> None:
    keys = config(query_prompt="q: ", negatives="step", both_directions=True, **SHAPE)
    siamese = keys.ranking_config
    assert (siamese.name, siamese.query_prompt, siamese.negatives) == ("siamese", "q: ", "step")
    assert (siamese.similarity, siamese.temperature, siamese.pooling) == ("cosine", 0.1, "mean")
