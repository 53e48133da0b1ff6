"""The vectors of a Siamese network: pooled, projected, normalised, from one tower or two, from chunks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from deepsiam.models.matching.siamese import Siamese
from deepsiam.models.pretraining.cross_thought import CrossThought, CrossThoughtConfig
from deepsiam.models.vectors import Vectors
from tests.models.matching.examples import micro_batch, positive, siamese
from tests.models.plain import same_gradients
from tests.models.tiny import CONFIG, VOCABULARY, tensors, trunk

IDS = torch.tensor([[2, 9, 8, 3, 0, 0], [2, 9, 8, 7, 6, 3]])
MASK = VOCABULARY.pad != IDS


def vectors(model: Siamese, ids: torch.Tensor = IDS, mask: torch.Tensor = MASK) -> torch.Tensor:
    """The only vector of each text."""
    embedded = model.embed_queries(ids, mask)
    assert embedded.mask.all()
    assert embedded.vectors.shape[1] == 1
    return embedded.vectors[:, 0]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize(
    ("keys", "pooled"),
    [
        ({"pooling": "cls"}, lambda states: states[0]),
        ({"pooling": "mean"}, lambda states: states.mean(0)),
        ({"pooling": "last"}, lambda states: states[-1]),
        ({"pooling": "first_m", "pooled_states": 5}, lambda states: states[:5].mean(0)),  # one text has only 4
    ],
)
def test_poolings_against_one_text_at_a_time(similarity: str, keys, pooled) -> None:
    model = Siamese(trunk(), siamese(similarity=similarity, **keys)).double()
    for row, keep, vector in zip(IDS, MASK, vectors(model), strict=True):
        expected = pooled(model.trunk(input_ids=row[keep][None]).last_hidden_state[0])
        expected = F.normalize(expected, dim=0) if similarity == "cosine" else expected
        torch.testing.assert_close(vector, expected, rtol=0, atol=1e-12)


def test_a_projection_is_linear_then_layer_norm() -> None:
    model = Siamese(trunk(), siamese(projection=7)).double()
    linear, norm = model.projection
    raw = vectors(Siamese(model.trunk, siamese()).double())
    torch.testing.assert_close(vectors(model), norm(linear(raw)), rtol=0, atol=1e-12)
    assert {name.split(".")[0] for name in model.heads} == {"projection"}
    assert not Siamese(trunk(), siamese()).heads


def test_several_special_tokens_are_concatenated_at_their_positions_in_pre_training() -> None:
    encoder = trunk(vocab_size=CONFIG["vocab_size"] + 2).eval()
    model = Siamese(encoder, siamese(special_tokens=3)).double().eval()
    pretrained = CrossThought(encoder, CrossThoughtConfig(name="cross_thought", special_tokens=3)).double().eval()
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 3, 0, 0]])
    mask = ids != 0
    embeddings = vectors(model, ids, mask)
    torch.testing.assert_close(embeddings, pretrained.embed_documents(ids, mask).vectors[:, 0], rtol=0, atol=1e-12)
    by_hand = torch.cat([ids[:, :1], torch.tensor([[40, 41]] * 2), ids[:, 1:]], dim=1)
    seen = torch.cat([mask[:, :1].expand(-1, 3), mask[:, 1:]], dim=1)
    states = encoder(input_ids=by_hand, attention_mask=seen[:, None, None]).last_hidden_state[:, :3]
    torch.testing.assert_close(embeddings, states.flatten(1), rtol=0, atol=1e-12)


def test_the_best_chunk_of_a_long_document_counts() -> None:
    """MaxP: every chunk is encoded by itself; the missing chunks of shorter documents do not count."""
    keys = siamese(document_chunks=3, max_document_tokens=5, pooling="mean")
    model = Siamese(trunk(), keys).double()
    assert (model.kind, Siamese(trunk(), siamese()).kind) == ("multi_vector", "dense")
    arrays = tensors(micro_batch(keys, [positive(9), positive(1), positive(3)]))  # 10, 2 and 4 tokens: 3, 1, 2 chunks
    assert arrays["document_ids"].shape == (3, 3, 5)
    documents = model.embed_documents(arrays["document_ids"], arrays["document_mask"])
    assert documents.mask.sum(1).tolist() == [3, 1, 2]
    queries = model.embed_queries(arrays["query_ids"], arrays["query_mask"])
    plain = Siamese(model.trunk, siamese(pooling="mean")).double()
    for column, (token, lengths) in enumerate([(14, [3, 3, 3]), (6, [2]), (8, [3, 1])]):  # the tenth token is truncated
        rows = [torch.tensor([[2, *[token] * length, 3]]) for length in lengths]
        scores = [queries.vectors[:, 0] @ vectors(plain, row, row > 0)[0] for row in rows]
        expected = torch.stack(scores).amax(0)
        torch.testing.assert_close(model.score(queries, documents)[:, column], expected, rtol=0, atol=1e-12)


COSINE = {"pooling": "mean", "similarity": "cosine", "temperature": 0.3}
TAUGHT = replace(positive(0, 1, given=[5, 8, 3]), scores=np.array([1.5, 2.0, -1.0, 0.5], np.float32))


@pytest.mark.parametrize("shape", [COSINE, {**COSINE, "learn_temperature": True}, {"temperature": 4.0}], ids=str)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"negatives": "step"},
        {"loss": "hinge", "negatives": "micro_batch"},
        {"loss": "binary", "negatives_per_query": 2},
        {"loss": {"softmax": 1.0, "kl": 0.5, "margin_mse": 0.1}},
    ],
    ids=str,
)
def test_each_number_of_dimensions_has_the_losses_of_the_vectors_first_numbers(keys, shape) -> None:
    examples = [TAUGHT, replace(TAUGHT, candidates=np.array([2, 7, 9, 4]), relevant=np.array([2]))]
    model = Siamese(trunk(), siamese(**keys, **shape, dimensions=[12, 5])).double()
    arrays = tensors(micro_batch(model.keys, examples))
    plain = Siamese(model.trunk, siamese(**keys, **shape)).double()
    texts = plain(represent=True, **arrays)
    assert texts["query_vectors"].shape[2] == 16
    expected = {}
    for number in (12, 5):
        sides = [texts[f"{side}_vectors"][..., :number] for side in ("query", "document")]
        if "similarity" in shape:
            sides = [F.normalize(side, dim=-1) for side in sides]
        if "learn_temperature" in shape:
            sides[0] = sides[0] / plain.temperature
        of_number = plain.losses(*(Vectors(side, torch.ones(side.shape[:2]).bool()) for side in sides), arrays)
        expected |= {f"{loss}_{number}": value for loss, value in of_number.items()}
    torch.testing.assert_close(model(**arrays), expected, rtol=1e-10, atol=1e-10)
    assert model.keys.weights == {term: plain.keys.weights[term.rpartition("_")[0]] for term in expected}
    if "learn_temperature" in shape:
        (slope,) = torch.autograd.grad(sum(model(**arrays).values()), [model.log_temperature])
        assert slope.abs() > 1e-6


class Features(torch.nn.Module):
    """What a loss of sentence-transformers needs of a model: features are embeddings."""

    def get_embedding_dimension(self) -> int:
        return CONFIG["hidden_size"]

    get_sentence_embedding_dimension = get_embedding_dimension  # in older releases

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**features}


def test_the_sum_over_dimensions_is_that_of_sentence_transformers() -> None:
    from sentence_transformers.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

    numbers, examples = [16, 8, 3], [positive(i, query=(30, i + 6)) for i in range(5)]
    keys = siamese(pooling="mean", similarity="cosine", temperature=0.05, dimensions=numbers)
    model = Siamese(trunk(), keys).double()
    arrays = tensors(micro_batch(keys, examples))
    texts = model(represent=True, **arrays)
    ours = sum(model(**arrays).values()) / len(examples)
    rival = MatryoshkaLoss(Features(), MultipleNegativesRankingLoss(Features(), scale=20.0), numbers)
    rival.loss.model = rival.model
    theirs = rival([{"sentence_embedding": texts[f"{side}_vectors"][:, 0]} for side in ("query", "document")], None)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    same_gradients(model, ours, theirs)


@pytest.mark.parametrize(("keys", "width"), [({}, 16), ({"projection": 7}, 7), ({"special_tokens": 2}, 32)])
def test_more_dimensions_than_a_vector_has_are_refused(keys, width: int) -> None:
    encoder = trunk(vocab_size=CONFIG["vocab_size"] + 1)
    assert vectors(Siamese(encoder, siamese(dimensions=[width, 2], **keys)).double()).shape == (2, width)
    with pytest.raises(ValueError, match=f"dimensions: {width + 1} are more than a vector's {width}"):
        Siamese(encoder, siamese(dimensions=[width + 1], **keys))


@pytest.mark.parametrize("projection", [None, 7])
def test_a_mean_without_the_prompt_is_that_of_the_text_and_what_follows(projection: int | None) -> None:
    prompt = {"pooling": "mean", "prompt_in_pooling": False, "query_prompt": "ab"}
    keys = siamese(similarity="cosine", projection=projection, **prompt)
    model = Siamese(trunk(), keys).double().eval()
    texts = [np.array(text) for text in ([9], [8, 30])]
    queries = model.embed_queries(**tensors(keys.query_framing(VOCABULARY).arrays(texts)))
    documents = model.embed_documents(**tensors(keys.document_framing(VOCABULARY).arrays(texts)))
    for i, text in enumerate(texts):  # a document has no prompt: all its states count
        for vectors, ids, first in ((queries, [2, 7, 8, *text, 3], 3), (documents, [2, *text, 3], 0)):
            mean = model.trunk(input_ids=torch.tensor([ids])).last_hidden_state[0, first:].mean(0)
            expected = F.normalize(mean if projection is None else model.projection(mean), dim=0)
            torch.testing.assert_close(vectors.vectors[i, 0], expected, rtol=0, atol=1e-12)
