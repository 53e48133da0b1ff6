import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.interface import IGNORED
from tests.models.sequences import SIZES, SPECIALS, WIDTH, WORDS, batcher, examples
from tests.models.tiny import VOCABULARY, documents, rngs

DOCUMENTS = st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=5)


@given(DOCUMENTS, st.integers(1, 5), st.integers(1, 6))
def test_examples_are_the_text_in_order(lengths, sequences, words):
    texts = documents(*lengths)
    maker = batcher(sequences, words, SPECIALS)
    blocks, origins = maker.examples(texts), maker.origins(texts)
    expected, numbers = [], []
    for number, document in enumerate(texts):
        tokens = [int(i) for sentence in document for i in sentence]
        expected += [*tokens, VOCABULARY.sep] if tokens else []
        numbers += [number] * (len(tokens) + 1) if tokens else []
    assert [i for ids in blocks for i in ids.tolist()] == expected
    size = sequences * words
    assert [len(ids) for ids in blocks] == [len(expected[i : i + size]) for i in range(0, len(expected), size)]
    assert origins == [sorted(set(numbers[i : i + size])) for i in range(0, len(numbers), size)]


@given(SIZES, st.integers(1, 8), st.integers(1, 9), st.integers(1, 5), st.integers(0, 99))
def test_arrays_are_special_tokens_followed_by_masked_words(sizes, sequences, words, specials, start):
    maker = batcher(sequences, words, specials)
    drawn = examples(*(min(size, sequences * words) for size in sizes))
    before = [ids.copy() for ids in drawn]
    arrays, counts, _ = maker.micro_batch(drawn, rngs(len(drawn), start))
    assert all(np.array_equal(a, b) for a, b in zip(drawn, before, strict=True))
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    assert ids.shape == mask.shape
    assert ids.shape[1] <= sequences
    assert ids.shape[2] == specials + words
    real = arrays["mlm_targets"] != IGNORED
    assert counts == {"mlm": real.sum()}
    assert (arrays["mlm_positions"][~real] == 0).all()
    restored = ids.copy()
    restored.reshape(-1)[arrays["mlm_positions"][real]] = arrays["mlm_targets"][real]
    for example, row, visible in zip(drawn, restored, mask, strict=True):
        used = -(-len(example) // words)
        assert (row[:used, :specials] == [VOCABULARY.cls, *range(40, 40 + specials - 1)]).all()
        assert visible[:used, :specials].all()
        assert row[:, specials:][visible[:, specials:]].tolist() == example.tolist()
        assert (row[~visible] == VOCABULARY.pad).all()
        assert visible[: used - 1].all()
        assert not visible[used:].any()
        assert not visible[used - 1, specials + (len(example) - 1) % words + 1 :].any()
    assert maker.micro_batch(drawn, rngs(len(drawn), start)).filled == mask.sum()


def test_15_percent_of_the_words_are_targets_but_never_special_tokens():
    maker = batcher(50, 64, 5)
    drawn = examples(*[3200] * 8)
    arrays, counts, _ = maker.micro_batch(drawn, rngs(8))
    assert counts["mlm"] == pytest.approx(0.15 * 8 * 3200, abs=8)
    ids = arrays["input_ids"].reshape(-1)[arrays["mlm_positions"][arrays["mlm_targets"] != IGNORED]]
    targets = arrays["mlm_targets"][arrays["mlm_targets"] != IGNORED]
    assert (ids == VOCABULARY.mask).mean() == pytest.approx(0.8, abs=0.03)
    assert (ids == targets).mean() == pytest.approx(0.1, abs=0.03)
    assert not np.isin(arrays["input_ids"][:, :, 5:], [VOCABULARY.cls, *range(40, 44)]).any()


def test_shapes_depend_little_and_only_on_the_longest_example():
    maker = batcher(20, WORDS, SPECIALS)
    shapes = [
        {name: array.shape for name, array in maker.micro_batch(examples(*sizes), rngs(2)).arrays.items()}
        for sizes in ([70, 3], [100, 60], [112, 112])
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert shapes[0]["input_ids"] == (2, 16, WIDTH)
