import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from models.losses import IGNORED
from models.sentences import ENOUGH
from models.skip_thought import SkipThought, SkipThoughtBatcher
from models.task import MarkedDocument
from tests.models.checks import HALF_PRECISIONS, half_precision, training_lowers_every_loss
from tests.models.plain import same_gradients
from tests.models.tiny import MAX_TOKENS, VOCABULARY, documents, rngs, tensors, trunk

LENGTHS = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=4)
DOCUMENTS = documents([5, 1, 20], [3, 3], [9], [7, 0, 2, 4], rng=3)
CLS, SEP = VOCABULARY.cls, VOCABULARY.sep
SIDES = ("previous", "next")


def batcher(max_tokens=MAX_TOKENS):
    return SkipThoughtBatcher(VOCABULARY, max_tokens)


def skip_thought(decoder_layers=2, **config):
    """An fp64 model, no weight at a value that would hide a mistake."""
    model = SkipThought(trunk(**config), decoder_layers).double()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    return model


def micro_batch(texts=DOCUMENTS, start=0):
    make = batcher()
    examples = make.examples(texts)
    return make.micro_batch(examples, rngs(len(examples), start))


def framed(sentence):
    return [CLS, *sentence.tolist(), SEP]


def neighbours(texts, max_tokens=MAX_TOKENS):
    """(previous, sentence, next) of all documents, in order, as framed lists or None."""
    longest = max_tokens - 2
    for document in texts:
        pieces = [framed(s[at : at + longest]) for s in document for at in range(0, len(s), longest)]
        for i, sentence in enumerate(pieces):
            if len(pieces) > 1:
                yield pieces[i - 1] if i else None, sentence, pieces[i + 1] if i + 1 < len(pieces) else None


def read(batch):
    """The same of a micro-batch: what goes in, and what each decoder is to write, by its targets."""
    a = batch.arrays
    sentences = [row[keep].tolist() for row, keep in zip(a["input_ids"], a["attention_mask"], strict=True)]
    sides = []
    for side in SIDES:
        ids, width = a[f"{side}_ids"], a[f"{side}_ids"].shape[1]
        written = [[] for _ in sentences]
        for position, target in zip(a[f"{side}_positions"], a[f"{side}_targets"], strict=True):
            if target != IGNORED:
                row, slot = divmod(int(position), width)
                assert ids[row, slot + 1] == target
                assert slot == len(written[row])
                written[row].append(int(target))
        sides.append([[CLS, *row] if row else None for row in written])
    return list(zip(sides[0], sentences, sides[1], strict=True))


def by_text(examples):
    return sorted(examples, key=str)


@settings(max_examples=50)
@given(LENGTHS, st.integers(3, MAX_TOKENS))
def test_every_sentence_is_to_write_the_one_before_and_the_one_after(lengths, max_tokens):
    texts = documents(*lengths)
    make = batcher(max_tokens)
    examples = make.examples(texts)
    expected = list(neighbours(texts, max_tokens))
    assert len(examples) == len(expected) == len(make.origins(texts))
    if not examples:
        return
    batch = make.micro_batch(examples, rngs(len(examples)))
    assert by_text(read(batch)) == by_text(expected)
    for side, place in zip(SIDES, (0, 2), strict=True):
        assert batch.counts[side] == sum(len(example[place]) - 1 for example in expected if example[place])
        assert len(batch.arrays[f"{side}_targets"]) % 64 == 0
    for example, (number,) in zip(examples, make.origins(texts), strict=True):
        assert any(
            np.array_equal(example.sentence, s[at : at + max_tokens - 2]) for s in texts[number] for at in range(len(s))
        )


def test_the_first_and_the_last_sentence_have_one_neighbour_each():
    batch = micro_batch(documents([2, 3, 4]))
    a, b, c = (framed(s) for s in documents([2, 3, 4])[0])
    assert by_text(read(batch)) == by_text([(None, a, b), (a, b, c), (b, c, None)])
    assert batch.counts == {"previous": 3 + 4, "next": 4 + 5}


def test_headings_are_left_out():
    a, b, c = documents([2, 3, 4])[0]
    batch = micro_batch([MarkedDocument([a, b, c], headings=[1])])
    assert by_text(read(batch)) == by_text([(None, framed(a), framed(c)), (framed(a), framed(c), None)])


def test_two_sentences_that_are_only_context_are_neighbours_in_another_document():
    a, b, c, d = documents([2, 3, 4, 5])[0]
    texts = [MarkedDocument([a, b, c]), MarkedDocument([a, b, d], context=2)]
    a, b, c, d = map(framed, (a, b, c, d))
    first = [(None, a, b), (a, b, c), (b, c, None)]
    assert by_text(read(micro_batch(texts))) == by_text([*first, (None, b, d), (b, d, None)])


def test_a_document_of_one_sentence_gives_nothing():
    assert batcher().examples(documents([9], [0, 9, 0], [], [0])) == []
    assert batcher().origins(documents([9], [0, 9, 0], [], [0])) == []


def test_data_without_sentence_boundaries_is_refused():
    with pytest.raises(ValueError, match="needs sentence boundaries"):
        batcher().examples(documents(*[[9]] * ENOUGH))


def test_the_arrays_depend_on_the_documents_alone():
    first, second = micro_batch(), micro_batch(start=7)
    assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)


def plain_attention(layer, x):
    """Self-attention of one sequence x [T, H] to itself and the past: a position, a head, a key at a time."""
    d = x.shape[1] // layer.heads
    query, key, value = layer.qkv(x).split(x.shape[1], dim=-1)
    out = []
    for t in range(len(x)):
        heads = []
        for part in (slice(h * d, (h + 1) * d) for h in range(layer.heads)):
            weights = torch.stack([query[t, part] @ key[j, part] / d**0.5 for j in range(t + 1)]).softmax(0)
            heads.append(sum(weights[j] * value[j, part] for j in range(t + 1)))
        out.append(torch.cat(heads))
    return layer.out(torch.stack(out))


def plain_loss(decoder, vector, text, embedding):
    """-sum of log P(w_t | w_<t, the sentence's vector) over one neighbour `[CLS] w_1 ... w_n [SEP]`."""
    x = torch.stack([vector, *(embedding[i] for i in text[1:-1])])
    x = decoder.norm(x + decoder.positions.weight[: len(x)])
    for layer in decoder.layers:
        x = layer.attention_norm(x + plain_attention(layer.attention, x))
        x = layer.feed_forward_norm(x + layer.feed_forward(x))
    log_p = (x @ embedding.T).log_softmax(-1)
    return -sum(log_p[t, token] for t, token in enumerate(text[1:]))


def test_losses_and_every_gradient_equal_a_plain_reference():
    model = skip_thought()
    embedding = model.trunk.get_input_embeddings().weight
    batch = micro_batch()
    ours = model(**tensors(batch))
    expected = {"previous": 0.0, "next": 0.0}
    for previous, sentence, following in neighbours(DOCUMENTS):
        vector = model.trunk(input_ids=torch.tensor([sentence])).last_hidden_state[0, 0]
        if previous:
            expected["previous"] += plain_loss(model.previous_decoder, vector, previous, embedding)
        if following:
            expected["next"] += plain_loss(model.next_decoder, vector, following, embedding)
    for side in SIDES:
        torch.testing.assert_close(ours[side], expected[side], rtol=1e-10, atol=0)
    weights = {"previous": 0.3, "next": 0.7}
    same_gradients(model, *(sum(weights[side] * losses[side] for side in SIDES) for losses in (ours, expected)))


@pytest.mark.parametrize("side", SIDES)
def test_a_decoder_knows_the_sentence_by_its_vector_alone(side):
    """Invariant 4: no attention across, so the gradient at the encoder's other states is exactly 0."""
    model, seen = skip_thought(), []

    def keep(module, args, output):
        output.last_hidden_state.retain_grad()
        seen.append(output.last_hidden_state)

    model.trunk.register_forward_hook(keep)
    batch = micro_batch()
    model(**tensors(batch))[side].backward()
    has_neighbour = torch.tensor([example[SIDES.index(side) * 2] is not None for example in read(batch)])
    assert torch.equal(seen[0].grad[:, 0].any(dim=1), has_neighbour)
    assert not seen[0].grad[:, 1:].any()


def test_the_decoders_have_nothing_in_common_but_the_trunks_embedding():
    model = skip_thought()
    table = [name for name, value in model.state_dict().items() if VOCABULARY.vocab_size in value.shape]
    assert table == ["trunk.embeddings.word_embeddings.weight"]
    assert {name.split(".")[0] for name in model.state_dict()} == {"trunk", "previous_decoder", "next_decoder"}
    losses = model(**tensors(micro_batch()))
    touched = {}
    for side in SIDES:
        grads = torch.autograd.grad(losses[side], list(model.parameters()), retain_graph=True, allow_unused=True)
        touched[side] = {name for (name, _), g in zip(model.named_parameters(), grads, strict=True) if g is not None}
    common = touched["previous"] & touched["next"]
    assert common == {name for name, _ in model.named_parameters() if name.startswith("trunk.")}


@settings(max_examples=20)
@given(LENGTHS, st.randoms(use_true_random=False))
def test_losses_are_the_sums_of_the_examples_losses_in_any_order(lengths, random):
    make, model = batcher(), skip_thought(1)
    examples = make.examples(documents(*lengths))
    if not examples:
        return

    def losses(some):
        return model(**tensors(make.micro_batch(some, rngs(len(some)))))

    with torch.no_grad():
        together, mixed = losses(examples), losses(random.sample(examples, len(examples)))
        apart = [losses([example]) for example in examples]
    for side in SIDES:
        assert torch.isfinite(together[side])
        torch.testing.assert_close(together[side], sum(x[side] for x in apart), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(together[side], mixed[side], rtol=1e-10, atol=1e-10)


def test_invariant_8_more_padding_changes_nothing():
    model, arrays = skip_thought(), tensors(micro_batch(DOCUMENTS[1:]))
    wider = dict(arrays)
    for name in ("input_ids", "attention_mask", "previous_ids", "next_ids"):
        width = arrays[name].shape[1]
        assert width < MAX_TOKENS
        wider[name] = F.pad(arrays[name], (0, MAX_TOKENS - width), value=VOCABULARY.pad)
        if name in ("previous_ids", "next_ids"):
            positions = name.replace("ids", "positions")
            wider[positions] = arrays[positions] // width * MAX_TOKENS + arrays[positions] % width
    torch.testing.assert_close(model(**wider), model(**arrays), rtol=1e-12, atol=0)


def test_swapped_vectors_change_both_losses():
    model, arrays = skip_thought(), tensors(micro_batch())
    own, others = model(**arrays), model(**arrays, swap=True)
    assert model.bottleneck_terms == SIDES == tuple(own)
    assert all(own[side] != others[side] for side in SIDES)


@HALF_PRECISIONS
def test_half_precision_losses_are_fp32_and_near_the_exact_ones(dtype):
    half_precision(SkipThought(trunk(initializer_range=0.02), 2).double(), tensors(micro_batch()), dtype)


def test_bad_options_and_trunks_are_refused():
    with pytest.raises(ValueError, match="max_tokens must be at least 3"):
        batcher(2)
    with pytest.raises(ValueError, match="decoder_layers must be at least 1"):
        skip_thought(0)
    with pytest.raises(ValueError, match="causal"):
        skip_thought(is_decoder=True)
    with pytest.raises(ValueError, match="its width 8 must be hidden_size 16"):
        skip_thought(model_type="electra", embedding_size=8)


def test_training_steps_lower_both_losses():
    training_lowers_every_loss(SkipThought(trunk(initializer_range=0.02), 1).double(), tensors(micro_batch()))
