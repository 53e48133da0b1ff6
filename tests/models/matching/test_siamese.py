import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from models.matching.siamese import Pair, Siamese, SiameseBatcher
from models.pretraining.cross_thought import CrossThought
from tests.models.checks import HALF_PRECISIONS
from tests.models.tiny import CONFIG, MAX_TOKENS, VOCABULARY, rngs, tensors, trunk


class Corpus:
    """Document i is i + 1 tokens, all of them 5 + i."""

    def tokens(self, i):
        return np.full(i + 1, 5 + i, dtype=np.uint16)


def pair(positive, *relevant, query=(30, 31)):
    return Pair(np.array(query, dtype=np.uint16), positive, frozenset({positive, *relevant}))


def batcher(negatives_per_query=0, loss="softmax", candidates=range(10), max_query_tokens=6, max_document_tokens=12):
    return SiameseBatcher(
        VOCABULARY,
        Corpus(),
        np.array(candidates),
        max_query_tokens=max_query_tokens,
        max_document_tokens=max_document_tokens,
        negatives_per_query=negatives_per_query,
        loss=loss,
    )


PAIRS = [pair(0, 1), pair(1), pair(2, 0), pair(1, 3)]


def test_other_relevant_documents_and_second_copies_of_a_positive_are_not_allowed():
    arrays, counts, _ = batcher().micro_batch(PAIRS, rngs(4))
    assert counts == {"softmax": 4}
    assert arrays["positives"].tolist() == [0, 1, 2, 3]
    assert arrays["negatives"].shape == (4, 0)
    # documents 0, 1, 2, 1
    assert arrays["allowed"].astype(int).tolist() == [[1, 0, 1, 0], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]


def test_texts_are_framed_cut_and_padded():
    arrays, _, _ = batcher(max_document_tokens=5).micro_batch([pair(9), pair(0, query=range(10, 20))], rngs(2))
    cls, sep, pad = VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.pad
    assert arrays["query_ids"].tolist() == [[cls, 30, 31, sep, pad, pad], [cls, 10, 11, 12, 13, sep]]
    assert arrays["document_ids"].tolist() == [[cls, 14, 14, 14, sep], [cls, 5, sep, pad, pad]]
    assert arrays["query_mask"].sum(1).tolist() == [4, 6]
    assert arrays["document_mask"].sum(1).tolist() == [5, 3]
    assert arrays["query_ids"].dtype == arrays["document_ids"].dtype == np.int64


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 9), max_size=4)), min_size=1, max_size=5), st.data()
)
def test_a_negative_is_never_relevant(pairs, data):
    n = data.draw(st.integers(1, 5))
    examples = [pair(positive, *relevant) for positive, relevant in pairs]
    arrays, _, _ = batcher(n, "hinge").micro_batch(examples, rngs(len(pairs)))
    numbers = arrays["document_ids"][:, 1] - 5
    assert numbers[: len(pairs)].tolist() == [positive for positive, _ in pairs]
    for example, columns in zip(examples, arrays["negatives"], strict=True):
        drawn = numbers[columns].tolist()
        assert len(set(drawn)) == n
        assert not set(drawn) & example.relevant
    for row, example in enumerate(examples):
        expected = [number not in example.relevant for number in numbers]
        expected[row] = True
        assert arrays["allowed"][row].tolist() == expected


def test_the_same_pairs_and_rngs_give_the_same_arrays():
    make = batcher(3)
    first, second, other = (make.micro_batch(make.examples(PAIRS), rngs(4, start)).arrays for start in (0, 0, 9))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["document_ids"], other["document_ids"])


def test_too_few_documents_to_draw_negatives_from_are_refused():
    with pytest.raises(ValueError, match="negatives_per_query is 3, but a query has only 2"):
        batcher(3, candidates=[0, 1, 5]).micro_batch([pair(0)], rngs(1))


def embeddings(model, ids, mask):
    """The same embeddings, one text at a time, without padding."""
    rows = []
    for row, keep in zip(ids, mask, strict=True):
        hidden = model.trunk(input_ids=row[keep][None]).last_hidden_state[0]
        vector = {"cls": hidden[0], "mean": hidden.mean(0), "last": hidden[-1]}[model.pooling]
        rows.append(vector / vector.norm() if model.similarity == "cosine" else vector)
    return torch.stack(rows)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_loss_and_gradient_against_loops(pooling, similarity, loss):
    model = Siamese(trunk(), pooling, similarity, temperature=0.3, loss=loss).double()
    arrays = tensors(batcher(2, loss).micro_batch(PAIRS, rngs(4)))
    ours = model(**arrays)
    queries = embeddings(model, arrays["query_ids"], arrays["query_mask"])
    documents = embeddings(model, arrays["document_ids"], arrays["document_mask"])
    expected = 0.0
    for i, query in enumerate(queries):
        scores = documents @ query / 0.3
        if loss == "softmax":
            expected -= F.log_softmax(scores[arrays["allowed"][i]], 0)[int(arrays["allowed"][i, :i].sum())]
        else:
            expected += sum(F.relu(1 - (scores[i] - scores[4 + 2 * i + j])) for j in range(2)) / 2
    assert ours.keys() == {loss}
    torch.testing.assert_close(ours[loss], expected, rtol=1e-10, atol=1e-10)
    parameters = list(model.parameters())
    used = [
        p
        for p, g in zip(parameters, torch.autograd.grad(expected, parameters, retain_graph=True), strict=True)
        if g.any()
    ]
    pairs = zip(torch.autograd.grad(ours[loss], used), torch.autograd.grad(expected, used), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


@HALF_PRECISIONS
def test_half_precision_embeddings_and_loss_are_fp32(dtype):
    model = Siamese(trunk().to(dtype), "mean", "cosine", 0.05)
    arrays = tensors(batcher().micro_batch(PAIRS, rngs(4)))
    vectors = model.embed(arrays["query_ids"], arrays["query_mask"])
    assert vectors.dtype == model(**arrays)["softmax"].dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4))


def test_embeddings_do_not_depend_on_padding():
    model = Siamese(trunk(), "mean").double()
    ids, mask = torch.tensor([[2, 9, 8, 3]]), torch.ones(1, 4, dtype=torch.bool)
    wide, wide_mask = (F.pad(x, (0, MAX_TOKENS - 4)) for x in (ids, mask))
    torch.testing.assert_close(model.embed(ids, mask), model.embed(wide, wide_mask), rtol=0, atol=1e-12)


def test_a_causal_encoder_stays_causal_and_pools_the_last_state():
    model = Siamese(trunk(is_decoder=True), "last").double()
    ids = torch.tensor([[2, 9, 8, 3, 0, 0], [2, 9, 8, 7, 6, 3]])
    mask = ids != VOCABULARY.pad
    hidden = model.trunk(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(model.embed(ids, mask), hidden[[0, 1], [3, 5]], rtol=0, atol=1e-12)
    torch.testing.assert_close(hidden[0, :3], hidden[1, :3], rtol=0, atol=1e-12)  # a later token changes nothing
    with pytest.raises(ValueError, match="causal"):
        Siamese(trunk(is_decoder=True), "cls")


def test_the_trunk_has_all_parameters():
    model = Siamese(trunk())
    assert all(name.startswith("trunk.") for name in model.state_dict())


def test_several_special_tokens_are_concatenated_at_their_positions_in_pre_training():
    encoder = trunk(vocab_size=CONFIG["vocab_size"] + 2).eval()
    model = Siamese(encoder, special_tokens=3).double().eval()
    pretrained = CrossThought(encoder, special_tokens=3).double().eval()
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 3, 0, 0]])
    mask = ids != 0
    embeddings = model.embed(ids, mask)
    assert embeddings.shape == (2, 3 * CONFIG["hidden_size"])
    torch.testing.assert_close(embeddings, pretrained.embed(ids, mask), rtol=0, atol=1e-12)
    by_hand = torch.cat([ids[:, :1], torch.tensor([[40, 41]] * 2), ids[:, 1:]], dim=1)
    seen = torch.cat([mask[:, :1].expand(-1, 3), mask[:, 1:]], dim=1)
    states = encoder(input_ids=by_hand, attention_mask=seen[:, None, None]).last_hidden_state[:, :3]
    torch.testing.assert_close(embeddings, states.flatten(1), rtol=0, atol=1e-12)
