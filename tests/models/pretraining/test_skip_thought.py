import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.skip_thought import SkipThought, SkipThoughtConfig
from tests.models import plain
from tests.models.tiny import MAX_TOKENS, VOCABULARY, LongFrame, Text, documents, perturbed, rngs, trunk

LENGTHS = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=4)
DOCUMENTS = documents([5, 1, 20], [3, 3], [9], [7, 0, 2, 4], rng=3)
CLS, SEP = VOCABULARY.cls, VOCABULARY.sep
SIDES = ("previous", "next")


def batcher(max_tokens=MAX_TOKENS, vocabulary=VOCABULARY):
    return SkipThoughtConfig(name="skip_thought", max_tokens=max_tokens).batcher(vocabulary)


def micro_batch(texts=DOCUMENTS):
    examples = batcher().examples(texts)
    return batcher().micro_batch(examples, rngs(len(examples)))


def framed(sentence):
    return [CLS, *sentence.tolist(), SEP]


def neighbours(texts, max_tokens=MAX_TOKENS):
    """Yield (previous, sentence, next) of all documents, in order, as framed lists or None."""
    longest = max_tokens - 2
    for document in texts:
        pieces = [framed(s[at : at + longest]) for s in document for at in range(0, len(s), longest)]
        for i, sentence in enumerate(pieces):
            if len(pieces) > 1:
                yield pieces[i - 1] if i else None, sentence, pieces[i + 1] if i + 1 < len(pieces) else None


def read(batch):
    """Read the same triples from a micro-batch: the inputs, and what each decoder predicts according to the targets."""
    a = batch.arrays
    sentences = [row[keep].tolist() for row, keep in zip(a["input_ids"], a["attention_mask"], strict=True)]
    sides = []
    for side in SIDES:
        ids, width = a[f"{side}_ids"], a[f"{side}_ids"].shape[1]
        predicted = [[] for _ in sentences]
        for position, target in zip(a[f"{side}_positions"], a[f"{side}_targets"], strict=True):
            if target != IGNORED:
                row, slot = divmod(int(position), width)
                assert ids[row, slot + 1] == target
                assert slot == len(predicted[row])
                predicted[row].append(int(target))
        sides.append([[CLS, *row] if row else None for row in predicted])
    return list(zip(sides[0], sentences, sides[1], strict=True))


def by_text(examples):
    return sorted(examples, key=str)


@given(LENGTHS, st.integers(8, MAX_TOKENS))
def test_every_sentence_predicts_the_one_before_and_the_one_after(lengths, max_tokens):
    texts = documents(*lengths)
    maker = batcher(max_tokens)
    examples = maker.examples(texts)
    expected = list(neighbours(texts, max_tokens))
    assert len(examples) == len(expected) == len(maker.origins(texts))
    if not examples:
        return
    batch = maker.micro_batch(examples, rngs(len(examples)))
    assert by_text(read(batch)) == by_text(expected)
    for side, place in zip(SIDES, (0, 2), strict=True):
        assert batch.counts[side] == sum(len(example[place]) - 1 for example in expected if example[place])
        assert len(batch.arrays[f"{side}_targets"]) % 64 == 0
    for example, (number,) in zip(examples, maker.origins(texts), strict=True):
        assert any(
            np.array_equal(example.sentence, s[at : at + max_tokens - 2]) for s in texts[number] for at in range(len(s))
        )


def test_headings_are_left_out():
    a, b, c = documents([2, 3, 4])[0]
    batch = micro_batch([Text([a, b, c], headings=[1])])
    assert by_text(read(batch)) == by_text([(None, framed(a), framed(c)), (framed(a), framed(c), None)])


def test_two_context_sentences_are_neighbours_in_another_document_only():
    a, b, c, d = documents([2, 3, 4, 5])[0]
    texts = [Text([a, b, c]), Text([a, b, d], context=2)]
    a, b, c, d = map(framed, (a, b, c, d))
    first = [(None, a, b), (a, b, c), (b, c, None)]
    assert by_text(read(micro_batch(texts))) == by_text([*first, (None, b, d), (b, d, None)])


def test_a_long_sentence_leaves_room_for_all_that_the_tokenizer_puts_around_it():
    maker = batcher(8, LongFrame(**vars(VOCABULARY)))
    examples = maker.examples(documents([10]))
    assert sorted(len(example.sentence) for example in examples) == [2, 4, 4]
    arrays = maker.micro_batch(examples, rngs(3)).arrays
    assert sorted(arrays["attention_mask"].sum(axis=1).tolist()) == [6, 8, 8]


def plain_loss(decoder, vector, text, embedding):
    """-sum of log P(w_t | w_<t, the sentence's vector) over one neighbour `[CLS] w_1 ... w_n [SEP]`."""
    states = plain.weak_decoder(decoder, "paper", "all", vector[None], torch.tensor([text[:-1]]), embedding)[0]
    log_p = (states @ embedding.T).log_softmax(-1)
    return -sum(log_p[t, token] for t, token in enumerate(text[1:]))


def test_losses_and_every_gradient_equal_a_plain_reference():
    model = perturbed(SkipThought(trunk(), SkipThoughtConfig(name="skip_thought", decoder_layers=2)))
    embedding = model.trunk.get_input_embeddings().weight
    expected = {"previous": 0.0, "next": 0.0}
    for previous, sentence, following in neighbours(DOCUMENTS):
        vector = model.trunk(input_ids=torch.tensor([sentence])).last_hidden_state[0, 0]
        if previous:
            expected["previous"] += plain_loss(model.previous_decoder, vector, previous, embedding)
        if following:
            expected["next"] += plain_loss(model.next_decoder, vector, following, embedding)
    plain.same_losses_and_gradients(model, micro_batch(), expected)
