"""Masked tokens and next tokens, the targets of language models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.targets import Masking, next_tokens
from deepsiam.models.interface import IGNORED
from tests.models.tiny import VOCABULARY, rngs

SPECIAL = VOCABULARY.special


def test_15_percent_of_the_tokens_are_targets_80_10_10():
    vocabulary = Vocabulary(1000, pad=0, unk=1, cls=2, sep=3, mask=4)
    masking = Masking(vocabulary)
    targets = words = masked = unchanged = 0
    drawn = []
    for i in range(400):
        ids = np.random.default_rng(i).integers(0, 1000, 512)
        new, positions = masking(ids, np.random.default_rng(i))
        words += (~np.isin(ids, vocabulary.special)).sum()
        targets += len(positions)
        masked += (new[positions] == vocabulary.mask).sum()
        unchanged += (new[positions] == ids[positions]).sum()
        changed = positions[(new[positions] != vocabulary.mask) & (new[positions] != ids[positions])]
        drawn += new[changed].tolist()
    assert targets / words == pytest.approx(0.15, abs=0.001)  # the count is rounded at random: no bias
    assert masked / targets == pytest.approx(0.8, abs=0.01)
    assert unchanged / targets == pytest.approx(0.1, abs=0.01)
    assert not set(drawn) & set(vocabulary.special)
    assert len(set(drawn)) > 900  # of 995 ordinary tokens, in 3000 draws


@given(st.lists(st.integers(0, VOCABULARY.vocab_size - 1), min_size=1, max_size=64), st.integers(0, 2**32))
def test_only_the_chosen_ordinary_tokens_change(tokens, seed):
    masking, ids = Masking(VOCABULARY), np.array(tokens)
    before = ids.copy()
    masked, positions = masking(ids, np.random.default_rng(seed))
    words = int((~np.isin(ids, SPECIAL)).sum())
    assert np.array_equal(ids, before)
    assert len(set(positions.tolist())) == len(positions)
    assert 0 <= len(positions) - int(0.15 * words) <= 1
    assert len(positions) <= masking.most(words)
    assert not np.isin(ids[positions], SPECIAL).any()
    untouched = np.setdiff1d(np.arange(len(ids)), positions)
    assert np.array_equal(masked[untouched], ids[untouched])
    assert np.isin(masked[positions], [*range(5, 40), VOCABULARY.mask]).all()


def test_one_word_is_a_target_in_15_of_100_cases():
    masking = Masking(VOCABULARY)
    block = np.array([VOCABULARY.cls, 9, VOCABULARY.sep])
    hits = sum(len(masking(block, rng)[1]) for rng in rngs(2000))
    assert hits / 2000 == pytest.approx(0.15, abs=0.03)


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=20), min_size=1, max_size=6), st.integers(0, 9))
def test_every_slot_but_a_rows_last_predicts_the_token_after_it(rows, padding):
    width = max(map(len, rows)) + padding
    positions, targets, number = next_tokens([np.array(row) for row in rows], width)
    expected = [(i * width + t, row[t + 1]) for i, row in enumerate(rows) for t in range(len(row) - 1)]
    assert number == len(expected)
    assert list(zip(positions[:number].tolist(), targets[:number].tolist(), strict=True)) == expected
    assert len(positions) == len(targets)
    assert len(targets) % 64 == 0
    assert 0 < len(targets) <= max(64, number + 63)
    assert (targets[number:] == IGNORED).all()
    assert not positions[number:].any()
    assert positions.dtype == targets.dtype == np.int64
