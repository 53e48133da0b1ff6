"""Poly pre-training: pairs and their groups, and the losses against one unpadded row at a time."""

from collections import Counter
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.reddit.threads import Utterance, cut
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.poly import PADDING, PolyConfig, PolyPretraining, cut_pairs
from deepsiam.models.trunk import token_types
from tests.models import plain
from tests.models.tiny import MAX_TOKENS, VOCABULARY, Text, documents, perturbed, rngs, tensors, trunk
from tests.models.trunks import trunk_like

KINDS = ["sentences", "spans", "utterances"]
LENGTHS = st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=8)
WINDOW = documents([5, 3, 6], [9, 9, 2], [1, 1], [30, 4], [2, 2, 2, 2], [3], [], rng=3)
LARGE = Vocabulary(30000, pad=0, unk=1, cls=2, sep=3, mask=4)


def batcher(pairs="sentences", max_tokens=MAX_TOKENS, tokens=60, vocabulary=VOCABULARY):
    return PolyConfig(name="poly", max_tokens=max_tokens, pairs=pairs, tokens=tokens).batcher(vocabulary)


def large_batcher(kind="sentences", max_tokens=128, tokens=32000):
    return batcher(kind, max_tokens, tokens, LARGE)


def for_loss(loss, groups):
    """The groups that serve a loss."""
    return [group for group in groups if group.loss == loss]


def rows_of(batch):
    """Yield (ids, token types) of each row without its padding, which must be on the right."""
    arrays = batch.arrays
    for ids, mask, types in zip(arrays["input_ids"], arrays["attention_mask"], arrays["token_types"], strict=True):
        size = int(mask.sum())
        assert mask[:size].all()
        assert (ids[size:] == VOCABULARY.pad).all()
        assert not types[size:].any()
        yield ids[:size].tolist(), types[:size].tolist()


def many(sentences, rng=0):
    """Draw a window of `sentences` sentences of log-normal lengths, in documents of about 20."""
    generator = np.random.default_rng(rng)
    window = []
    while sentences > 0:
        number = min(sentences, 2 + generator.geometric(1 / 20))
        lengths = np.exp(generator.normal(3.0, 0.65, number)).round().clip(1, 300).astype(int)
        window.append(Text(generator.integers(5, LARGE.vocab_size, n).astype(np.uint16) for n in lengths))
        sentences -= number
    return window


def plain_pairs(document, kind, room, number):
    """Yield (document, INPUT, LABEL) as the paper describes them, in lists."""
    headings, context = getattr(document, "headings", ()), getattr(document, "context", 0)
    kept = [(i >= context, ids.tolist()) for i, ids in enumerate(document) if len(ids) and i not in headings]
    for i, (new, label) in enumerate(kept):
        if not new or i == 0:
            continue
        before = [ids for _, ids in kept[:i]] if kind == "utterances" else [kept[i - 1][1]]
        label = label[: max(room // 2, room - sum(map(len, before)))]
        while len(before) > 1 and sum(map(len, before)) > room - len(label):
            before.pop(0)
        text = sum(before, [])
        yield number, tuple(text[max(0, len(text) - (room - len(label))) :]), tuple(label)


def as_tuples(pairs):
    """List (document, INPUT, LABEL) of pairs."""
    ids = pairs.ids.tolist()
    bounds = zip(pairs.document.tolist(), pairs.start, pairs.middle, pairs.end, strict=True)
    return [(number, tuple(ids[a:b]), tuple(ids[b:c])) for number, a, b, c in bounds]


@st.composite
def windows(draw):
    """Draw documents, some with empty segments, headings and context."""
    window = documents(*draw(LENGTHS), rng=draw(st.integers(0, 3)))
    numbers = st.integers(0, 8)
    return [Text(d, draw(st.sets(numbers, max_size=2)), draw(numbers)) if draw(st.booleans()) else d for d in window]


@given(windows(), st.sampled_from(["sentences", "utterances"]), st.integers(5, 60))
def test_pairs_are_those_of_the_paper(window, kind, room):
    expected = [pair for number, document in enumerate(window) for pair in plain_pairs(document, kind, room, number)]
    assert as_tuples(cut_pairs(window, kind, room)) == expected


@given(windows(), st.integers(5, 60))
def test_spans_are_consecutive_sentences_that_fill_the_room(window, room):
    pairs = as_tuples(cut_pairs(window, "spans", room))
    for number, document in enumerate(window):
        headings, context = getattr(document, "headings", ()), getattr(document, "context", 0)
        kept = [(i >= context, ids.tolist()) for i, ids in enumerate(document) if len(ids) and i not in headings]
        i = max(0, sum(not new for new, _ in kept) - 1)  # the last context segment is what the reply answers
        for _, text, label in [pair for pair in pairs if pair[0] == number]:
            taken = 2
            while i + taken < len(kept) and sum(len(ids) for _, ids in kept[i : i + taken + 1]) <= room:
                taken += 1
            sentences = [ids for _, ids in kept[i : i + taken]]
            halves = [(sum(sentences[:at], []), sum(sentences[at:], [])) for at in range(1, taken)]
            if len(text) + len(label) < sum(map(len, sentences)):  # two sentences that are too long for one pair
                assert taken == 2
                assert len(text) + len(label) == room
                (a, b) = halves[0]
                assert a[len(a) - len(text) :] == list(text)
                assert b[: len(label)] == list(label)
            else:
                assert (list(text), list(label)) in halves
            i += taken
        assert len(kept) - i <= 1  # at most one segment is left over at the end


@given(st.lists(st.integers(0, 60), min_size=1, max_size=70), st.randoms(use_true_random=False))
def test_every_reply_of_a_thread_is_a_label_exactly_once(parents, random: Random):
    """Reddit's threads are cut into documents that repeat utterances as context."""
    thread = [Utterance("t3_a", 0, "t3_a", "", 0, 0, "0", "")]
    for n, parent in enumerate(parents, start=1):
        replied = f"t1_{parent % n}" if parent % n else "t3_a"
        thread.append(Utterance("t3_a", n, f"t1_{n}", replied, 0, 0, str(n), ""))
    random.shuffle(thread)
    window = [
        Text([np.array([int(text)]) for text in d.segments], d.headings, d.context)
        for d in cut(thread, is_wanted=lambda _: True)
        if isinstance(d, Document)
    ]
    pairs = as_tuples(cut_pairs(window, "utterances", 20))
    assert Counter((text[-1], label[0]) for _, text, label in pairs) == Counter(
        (parent % n, n) for n, parent in enumerate(parents, start=1)
    )


@given(LENGTHS, st.sampled_from(KINDS), st.integers(8, MAX_TOKENS), st.integers(0, 40))
def test_every_pair_is_in_one_group_and_groups_are_dense(lengths, kind, max_tokens, more):
    window = documents(*lengths)
    groups = batcher(kind, max_tokens, max_tokens + more).examples(window)
    rows = [int(row) for group in groups for row in group.rows]
    assert sorted(rows) == list(range(len(cut_pairs(window, kind, max_tokens - 3).start)))
    for group in groups:
        sizes = group.pairs.lengths[group.rows]
        assert sizes.max() <= group.width <= max_tokens
        assert len(sizes) * group.width <= max_tokens + more
        assert sizes.sum() >= (1 - PADDING) * len(sizes) * group.width
    for group, following in zip(groups, groups[1:], strict=False):
        assert group.loss != following.loss or len({int(g.pairs.document[r]) for g in groups for r in g.rows}) == 1


@pytest.mark.parametrize("length", [2046, 2047, 2048, 8192])
def test_a_pair_whose_width_alone_is_more_padding_is_a_group(length):
    pairs, maker = documents([length] * 2, [length] * 2), large_batcher(max_tokens=16_384, tokens=16_384)
    assert sorted(int(row) for group in maker.examples(pairs) for row in group.rows) == [0, 1]


@pytest.mark.parametrize(("kind", "max_tokens"), [("sentences", 128), ("spans", 512), ("utterances", 128)])
def test_padding_is_under_3_percent_in_windows_of_realistic_lengths(kind, max_tokens):
    maker = large_batcher(kind, max_tokens)
    groups = maker.examples(many(4000))
    batches = [maker.micro_batch([group], rngs(1, start)) for start, group in enumerate(groups)]
    padded = sum(batch.arrays["input_ids"].size for batch in batches)
    assert 1 - sum(batch.filled for batch in batches) / padded < 0.03
    assert all(batch.arrays["input_ids"].size <= 32000 for batch in batches)
    assert padded / len(batches) > 1500  # most lengths have too little text to fill a group


def test_the_losses_alternate_and_groups_are_not_in_order_of_length():
    groups = large_batcher(tokens=1000).examples(many(2000))
    assert all(a.loss != b.loss for a, b in zip(groups, groups[1:], strict=False))
    widths = np.array([group.width for group in groups])
    assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.3
    begins = Counter(batcher().examples(documents(*[[3, 4]] * 3, rng=rng))[0].loss for rng in range(100))
    assert 30 < begins["mlm"] < 70


@given(LENGTHS, st.sampled_from(KINDS))
def test_origins_are_the_documents_of_the_pairs(lengths, kind):
    window = documents(*lengths)
    maker = batcher(kind)
    groups, origins = maker.examples(window), maker.origins(window)
    assert len(groups) == len(origins)
    for group, numbers in zip(groups, origins, strict=True):
        assert numbers == sorted({int(group.pairs.document[row]) for row in group.rows})


@given(LENGTHS, st.sampled_from(KINDS), st.integers(0, 9))
def test_rows_are_input_and_label_between_special_tokens(lengths, kind, start):
    groups = batcher(kind).examples(documents(*lengths))
    for number, group in enumerate(groups):
        texts = as_tuples(group.pairs)
        batch = batcher(kind).micro_batch([group], rngs(1, start + number))
        arrays, masked = batch.arrays, batch.arrays["mlm_targets"] != IGNORED
        original = arrays["input_ids"].copy()
        original.ravel()[arrays["mlm_positions"][masked]] = arrays["mlm_targets"][masked]
        rows = rows_of(batch._replace(arrays={**arrays, "input_ids": original}))
        for pair, true, (ids, types) in zip(group.rows, arrays["next_targets"], rows, strict=True):
            document, text, label = texts[pair]
            assert types == [0] * (len(text) + 2) + [1] * (len(ids) - len(text) - 2)
            assert ids[: len(text) + 2] == [VOCABULARY.cls, *text, VOCABULARY.sep]
            assert ids[-1] == VOCABULARY.sep
            if true != 0:
                assert ids == [VOCABULARY.cls, *text, VOCABULARY.sep, *label, VOCABULARY.sep]
                continue
            other = tuple(ids[len(text) + 2 : -1])
            assert other != label
            assert other in {words for number, _, words in texts if number != document}
        assert arrays["input_ids"].shape == (len(group.rows), group.width)
        assert len(set(arrays["mlm_positions"][masked].tolist())) == batch.counts["mlm"] == masked.sum()
        assert batch.counts["next"] == (0 if group.loss == "mlm" else len(group.rows))
        assert set(arrays["next_targets"].tolist()) <= ({IGNORED} if group.loss == "mlm" else {0, 1})
        if group.loss == "next":
            assert not batch.counts["mlm"]


def test_words_are_masked_in_both_texts():
    maker = large_batcher()
    arrays = maker.micro_batch(for_loss("mlm", maker.examples(many(2000)))[:2], rngs(2)).arrays
    targets = arrays["mlm_targets"] != IGNORED
    assert 0.4 < arrays["token_types"].ravel()[arrays["mlm_positions"][targets]].mean() < 0.6


def test_half_the_labels_are_true_and_lengths_do_not_reveal_which():
    maker = large_batcher()
    groups = for_loss("next", maker.examples(many(8000)))
    batches = [maker.micro_batch([group], rngs(1, number)) for number, group in enumerate(groups)]
    true = np.concatenate([batch.arrays["next_targets"] for batch in batches])
    assert len(true) > 2000
    assert true.mean() == pytest.approx(0.5, abs=0.04)
    lengths = np.concatenate([batch.arrays["token_types"].sum(1) for batch in batches])  # the lengths of the LABELs
    own = np.concatenate([group.pairs.end[group.rows] - group.pairs.middle[group.rows] + 1 for group in groups])
    assert (lengths == own).mean() > 0.98
    assert lengths[true == 0].mean() == pytest.approx(lengths[true == 1].mean(), rel=0.05)


@pytest.mark.parametrize("together", [1, 3])
def test_false_labels_come_from_every_document_but_those_of_the_same_group(together):
    """Parts of a long book, or replies of one thread, are separate documents of one group."""
    texts = documents(*[[4, 4, 4]] * 9, rng=4)
    window = [Text(t, group=f"book {number // 3}" if together > 1 else "") for number, t in enumerate(texts)]
    (group,) = batcher(tokens=1000).examples(window)
    labels = {words: number for number, _, words in as_tuples(group.pairs)}
    seen = Counter()
    for start in range(60):
        batch = batcher().micro_batch([group._replace(loss="next")], rngs(1, start))
        rows = zip(group.rows, batch.arrays["next_targets"], rows_of(batch), strict=True)
        seen.update(
            (int(group.pairs.document[row]), labels[tuple(ids[6:-1])]) for row, true, (ids, _) in rows if not true
        )
    assert seen.keys() == {(a, b) for a in range(9) for b in range(9) if a // together != b // together}
    assert max(seen.values()) < 3 * sum(seen.values()) / len(seen)


def test_a_window_of_one_document_or_group_has_no_false_labels_and_no_next_loss():
    for window in (documents([3] * 15, [], [4], rng=1), [Text(t, group="a book") for t in documents(*[[4, 4]] * 6)]):
        assert {group.loss for group in batcher().examples(window)} == {"mlm"}


def test_a_label_that_all_others_equal_stays_true():
    window = [Text([np.array([n]), np.array([9, 9])]) for n in range(5, 20)]
    groups = batcher(tokens=1000).examples(window)
    batch = batcher().micro_batch([group._replace(loss="next") for group in groups], rngs(len(groups)))
    assert (batch.arrays["next_targets"] == 1).all()


def test_shapes_depend_only_on_width_and_rows():
    maker = large_batcher()

    def shapes(loss, shorter):
        (group,) = maker.examples(documents([50, 50], *[[50, 50 - shorter]] * 29, rng=shorter))
        return {n: a.shape for n, a in maker.micro_batch([group._replace(loss=loss)], rngs(1)).arrays.items()}

    for loss in ("mlm", "next"):
        assert shapes(loss, 0) == shapes(loss, 1) == shapes(loss, 2)
    widths = {longest: large_batcher(max_tokens=512)._width(longest) for longest in range(4, 513)}
    assert len({*widths.values()}) < 160
    assert all(longest <= width <= longest / (1 - PADDING) for longest, width in widths.items())


ENCODERS = {
    "bert": {},
    "roberta": {"model_type": "roberta", "type_vocab_size": 1, "max_position_embeddings": MAX_TOKENS + 1},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert"])
def test_losses_and_gradients_equal_a_plain_reference_with_token_types_or_without(name, kind):
    encoder = trunk(**ENCODERS[name]) if name in ENCODERS else trunk_like(name)
    groups = batcher(kind).examples(WINDOW)  # rows for both losses, of several widths
    batch = batcher(kind).micro_batch(groups, rngs(len(groups)))
    assert all(batch.counts.values())
    poly, arrays = perturbed(PolyPretraining(encoder)).eval(), batch.arrays
    embedding, width = poly.trunk.get_input_embeddings().weight, arrays["input_ids"].shape[1]
    targets = dict(zip(arrays["mlm_positions"].tolist(), arrays["mlm_targets"].tolist(), strict=True))
    losses = dict.fromkeys(["mlm", "next"], torch.zeros(()).double())
    for row, (ids, types) in enumerate(rows_of(batch)):  # unpadded, one at a time
        named = {"token_type_ids": torch.tensor([types])} if token_types(encoder) > 1 else {}
        hidden = encoder(input_ids=torch.tensor([ids]), **named).last_hidden_state[0]
        true = arrays["next_targets"][row]
        if true == IGNORED:
            masked = [t for t in range(len(ids)) if targets.get(row * width + t, IGNORED) != IGNORED]
            words = [targets[row * width + t] for t in masked]
            losses["mlm"] = losses["mlm"] + plain.lm_loss(poly.lm_head, hidden[masked], embedding, words)
        else:
            p = torch.sigmoid(hidden[0] @ poly.next_head.score.weight[0] + poly.next_head.score.bias[0])
            losses["next"] = losses["next"] - torch.log(p if true else 1 - p)
    plain.same_losses_and_gradients(poly, batch, losses)


@pytest.mark.parametrize("loss", ["mlm", "next"])
def test_a_batch_for_one_loss_still_reaches_every_weight(loss):
    """Under ZeRO-3, ranks with batches of either kind must gather the same weights in the same order."""
    poly, groups = perturbed(PolyPretraining(trunk())), for_loss(loss, batcher().examples(WINDOW))
    losses = poly(**tensors(batcher().micro_batch(groups[:1], rngs(1))))
    assert losses[loss] > 0
    assert sum(losses.values()) == losses[loss]
    sum(losses.values()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in poly.parameters())
    heads = {name.split(".")[0] for name, p in poly.named_parameters() if p.grad.any()}
    assert heads == {"trunk", "lm_head" if loss == "mlm" else "next_head"}
