"""The vectors of a Siamese network: pooled, projected, normalised, from one tower or two, from chunks."""

import pytest
import torch
import torch.nn.functional as F

from models.matching.siamese import Siamese
from models.pretraining.cross_thought import CrossThought, CrossThoughtConfig
from tests.models.matching.examples import micro_batch, positive, siamese
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


def test_a_causal_encoder_stays_causal_and_pools_the_last_state() -> None:
    model = Siamese(trunk(is_decoder=True), siamese(pooling="last")).double()
    hidden = model.trunk(input_ids=IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(vectors(model), hidden[[0, 1], [3, 5]], rtol=0, atol=1e-12)
    torch.testing.assert_close(hidden[0, :3], hidden[1, :3], rtol=0, atol=1e-12)  # a later token changes nothing


def test_the_trunk_has_all_parameters() -> None:
    model = Siamese(trunk(), siamese())
    assert all(name.startswith("trunk.") for name in model.state_dict())


def test_several_special_tokens_are_concatenated_at_their_positions_in_pre_training() -> None:
    encoder = trunk(vocab_size=CONFIG["vocab_size"] + 2).eval()
    model = Siamese(encoder, siamese(special_tokens=3)).double().eval()
    pretrained = CrossThought(encoder, CrossThoughtConfig(name="cross_thought", special_tokens=3)).double().eval()
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 3, 0, 0]])
    mask = ids != 0
    embeddings = vectors(model, ids, mask)
    assert embeddings.shape == (2, 3 * CONFIG["hidden_size"])
    torch.testing.assert_close(embeddings, pretrained.embed_documents(ids, mask).vectors[:, 0], rtol=0, atol=1e-12)
    by_hand = torch.cat([ids[:, :1], torch.tensor([[40, 41]] * 2), ids[:, 1:]], dim=1)
    seen = torch.cat([mask[:, :1].expand(-1, 3), mask[:, 1:]], dim=1)
    states = encoder(input_ids=by_hand, attention_mask=seen[:, None, None]).last_hidden_state[:, :3]
    torch.testing.assert_close(embeddings, states.flatten(1), rtol=0, atol=1e-12)


def test_the_best_chunk_of_a_long_document_counts() -> None:
    """MaxP: every chunk is encoded by itself; the missing chunks of shorter documents do not count."""
    keys = siamese(document_chunks=3, max_document_tokens=5, pooling="mean")
    model = Siamese(trunk(), keys).double()
    assert model.kind == "multi_vector"
    assert Siamese(trunk(), siamese()).kind == "dense"
    arrays = tensors(micro_batch(keys, [positive(9), positive(1), positive(3)]))  # 10, 2 and 4 tokens: 3, 1, 2 chunks
    assert arrays["document_ids"].shape == (3, 3, 5)
    documents = model.embed_documents(arrays["document_ids"], arrays["document_mask"])
    assert documents.mask.tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    queries = model.embed_queries(arrays["query_ids"], arrays["query_mask"])
    plain = Siamese(model.trunk, siamese(pooling="mean")).double()
    for column, (token, lengths) in enumerate([(14, [3, 3, 3]), (6, [2]), (8, [3, 1])]):  # the tenth token is truncated
        rows = [torch.tensor([[2, *[token] * length, 3]]) for length in lengths]
        scores = [queries.vectors[:, 0] @ vectors(plain, row, row > 0)[0] for row in rows]
        expected = torch.stack(scores).amax(0)
        torch.testing.assert_close(model.score(queries, documents)[:, column], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"special_tokens": 2, "pooling": "mean"}, "set method.pooling=cls"),
        ({"pooling": "first_m"}, "set both or neither"),
        ({"pooled_states": 2}, "set both or neither"),
        ({"pooling": "first_m", "pooled_states": 7}, "pooled_states=7 are more than method.max_query_tokens"),
    ],
)
def test_poolings_that_cannot_be_are_refused(keys, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        siamese(**keys)
