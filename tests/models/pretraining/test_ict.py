import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.pretraining.ict import Ict, IctConfig, Passage
from tests.models.plain import same_losses_and_gradients
from tests.models.tiny import MAX_TOKENS, VOCABULARY, Text, documents, perturbed, rngs, tensors, trunk

LENGTHS = st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=5)
DOCUMENTS = documents([12, 9, 8, 7], [1, 1], [30, 6, 6], [8, 8], [3, 0, 2], rng=3)
CLS, SEP = VOCABULARY.cls, VOCABULARY.sep


def batcher(max_tokens=MAX_TOKENS, **keys):
    given = {"max_query_tokens": 10, "remove": 0.5, **keys}
    return IctConfig(name="ict", max_tokens=max_tokens, **given).batcher(VOCABULARY)


def micro_batch(texts=DOCUMENTS, start=0, **options):
    maker = batcher(**options)
    examples = maker.examples(texts)
    return maker.micro_batch(examples, rngs(len(examples), start))


def rows(ids, mask):
    return [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]


def texts_of(batch):
    """The queries and passages of a micro-batch, as lists of ids."""
    a = batch.arrays
    return rows(a["query_ids"], a["query_mask"]), rows(a["passage_ids"], a["passage_mask"])


@given(LENGTHS, st.integers(8, MAX_TOKENS))
def test_passages_are_runs_of_sentences_of_one_document(lengths, max_tokens):
    texts = documents(*lengths)
    maker = batcher(max_tokens)
    passages, origins = maker.examples(texts), maker.origins(texts)
    assert len(passages) == len(origins)
    longest, starts = max_tokens - 2, set()
    for passage, (number,) in zip(passages, origins, strict=True):
        pieces = [s[at : at + longest].tolist() for s in texts[number] for at in range(0, len(s), longest)]
        run = [s.tolist() for s in passage.sentences]
        assert len(run) >= 2
        assert sum(map(len, run)) <= longest
        (start, *_) = [i for i in range(len(pieces)) if pieces[i : i + len(run)] == run and (number, i) not in starts]
        after = pieces[start + len(run) : start + len(run) + 1]
        assert sum(map(len, run + after)) > longest or not after  # as long as possible
        starts.add((number, start))
    all_pieces = sum(-(-n // longest) for document in lengths for n in document)
    assert sum(len(passage.sentences) for passage in passages) <= all_pieces
    if longest >= sum(map(sum, lengths)):
        assert len(passages) == sum(sum(n > 0 for n in document) > 1 for document in lengths)


def test_a_document_of_one_sentence_gives_no_passage():
    maker = batcher()
    assert maker.examples(documents([9], [0, 9, 0], [], [0])) == []
    assert maker.examples(documents([22, 22, 22])) == []  # no room for two sentences
    assert len(maker.examples(documents([1, 1]))) == 1
    assert Ict(trunk())(**tensors(micro_batch(documents([1, 1]))))["ict"] == 0  # there is only one passage


def test_headings_and_passages_of_context_only_are_left_out():
    (sentences,) = documents([10, 10, 10, 10])
    first, second, others = (np.concatenate([sentences[i] for i in of]).tolist() for of in ((0, 1), (2, 3), (1, 3)))
    for headings, context, expected in (
        ((), 0, [first, second]),
        ((0, 2), 0, [others]),
        ((), 2, [second]),
        ((), 1, [first, second]),
    ):
        passages = batcher().examples([Text(sentences, headings, context)])
        assert sorted(np.concatenate(p.sentences).tolist() for p in passages) == sorted(expected)


def test_a_passage_is_shown_without_its_query_where_that_is_removed():
    for remove in (0.0, 1.0):
        maker = batcher(remove=remove, max_query_tokens=MAX_TOKENS)
        examples = maker.examples(DOCUMENTS)
        queries, passages = texts_of(maker.micro_batch(examples, rngs(len(examples))))
        for example, query, passage in zip(examples, queries, passages, strict=True):
            sentences = [s.tolist() for s in example.sentences]
            chosen = sentences.index(query[1:-1])
            rest = sentences[:chosen] + sentences[chosen + 1 :] if remove else sentences
            assert query == [CLS, *sentences[chosen], SEP]
            assert passage == [CLS, *(i for s in rest for i in s), SEP]


def test_the_sentence_is_drawn_evenly_and_removed_at_the_given_rate():
    maker = batcher(remove=0.9)
    (example,) = maker.examples([Text([np.array([5]), np.array([6]), np.array([7])])])
    queries, passages = texts_of(maker.micro_batch([example] * 3000, rngs(3000)))
    removed = np.mean([len(passage) == 4 for passage in passages])
    assert removed == pytest.approx(0.9, abs=0.02)
    drawn = np.bincount([query[1] for query in queries], minlength=8)[5:] / 3000
    assert drawn == pytest.approx([1 / 3] * 3, abs=0.03)


def test_a_long_query_loses_its_end():
    queries, _ = texts_of(micro_batch([Text([np.arange(5, 14), np.arange(14, 23)])], max_query_tokens=8))
    assert queries in ([[CLS, *range(5, 11), SEP]], [[CLS, *range(14, 20), SEP]])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=7))
def test_a_passage_of_the_same_document_or_text_is_never_a_negative(chosen):
    texts = documents(*[[3, 4]] * 4)
    examples = [Passage(texts[text], bytes([document])) for document, text in chosen]
    allowed = batcher().micro_batch(examples, rngs(len(examples))).arrays["allowed"]
    for i, (document, text) in enumerate(chosen):
        for j, (other, other_text) in enumerate(chosen):
            assert allowed[i, j] == (i == j or (document != other and text != other_text))


def test_a_passage_with_the_querys_sentence_is_never_a_negative():
    """Example: two replies to the same utterance are separate documents that both repeat it."""
    utterance, *replies = (np.arange(start, start + 4) for start in (5, 10, 15))
    examples = [Passage([utterance, reply], bytes([number])) for number, reply in enumerate(replies)]
    seen = set()
    for start in range(20):
        arrays = batcher().micro_batch(examples, rngs(2, start)).arrays
        for row, other in ((0, 1), (1, 0)):
            in_both = arrays["query_ids"][row, 1] == utterance[0]
            assert arrays["allowed"][row, other] == (not in_both)
            seen.add(bool(in_both))
    assert seen == {False, True}


def test_documents_are_identified_by_their_tokens():
    texts = documents([12, 9, 8, 7], [5, 5])
    first, again = (batcher().examples(window) for window in (texts, texts[::-1]))  # also in another window or epoch
    assert len({passage.document for passage in [*first, *again]}) == 2


def test_passages_of_one_document_are_far_apart():
    """If adjacent, they would fill micro-batches in which no query has a negative."""
    maker = batcher()
    passages = maker.examples(documents(*[[9] * 40] * 20))
    assert len(passages) == 400
    for start in range(0, len(passages), 32):
        part = passages[start : start + 32]
        assert maker.micro_batch(part, rngs(len(part))).arrays["allowed"].mean() > 0.8


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_loss_and_every_gradient_equal_a_plain_reference(pooling):
    """-log of exp(h_q . h_b) over its sum for all blocks b of the batch (Lee et al., 2019, section 4)."""
    maker, keys = batcher(), IctConfig(name="ict", pooling=pooling)
    model = perturbed(keys.model(trunk(initializer_range=0.1)))
    examples = maker.examples(DOCUMENTS)
    origins = maker.origins(DOCUMENTS)
    batch = maker.micro_batch(examples, rngs(len(examples)))
    queries, passages = texts_of(batch)

    def pooled(states):
        return states[0] if pooling == "cls" else states.mean(0)

    h_q, h_b = (
        [pooled(model.trunk(input_ids=torch.tensor([text])).last_hidden_state[0]) for text in texts]
        for texts in (queries, passages)
    )
    expected, negatives = 0.0, 0
    for i, query in enumerate(h_q):
        compared = [j for j in range(len(h_b)) if j == i or origins[j] != origins[i]]
        negatives += len(compared) - 1
        expected += torch.stack([query @ h_b[j] for j in compared]).logsumexp(0) - query @ h_b[i]
    assert batch.counts == {"ict": len(examples)}
    assert batch.filled == sum(map(len, queries + passages))
    assert batch.tokens == batch.filled - 2 * (len(queries) + len(passages))  # [CLS] and [SEP]
    assert len(examples) ** 2 - len(examples) > negatives > 0
    same_losses_and_gradients(model, batch, {"ict": expected})
    embedded = model.embed_documents(*(tensors(batch)[f"passage_{name}"] for name in ("ids", "mask")))
    torch.testing.assert_close(embedded.vectors[:, 0], torch.stack(h_b), rtol=0, atol=1e-10)
