"""Examples for the tests of Cross-Thought, and their micro-batches."""

import numpy as np
from hypothesis import strategies as st

from deepsiam.models.pretraining.cross_thought import CrossThoughtBatcher, CrossThoughtConfig
from tests.models.tiny import VOCABULARY, rngs

SEQUENCES, WORDS, SPECIALS = 6, 7, 3
WIDTH = SPECIALS + WORDS
SIZES = st.lists(st.integers(1, SEQUENCES * WORDS), min_size=1, max_size=4)


def examples(*sizes, rng=0):
    """Draw an example for each number of words."""
    generator = np.random.default_rng(rng)
    return [generator.integers(5, VOCABULARY.vocab_size, size) for size in sizes]


def batcher(sequences=SEQUENCES, words=WORDS, specials=SPECIALS):
    keys = {"sequences": sequences, "sequence_tokens": words, "special_tokens": specials}
    return CrossThoughtBatcher(CrossThoughtConfig(name="cross_thought", **keys), VOCABULARY)


def batch(examples, start=0):
    return batcher().micro_batch(examples, rngs(len(examples), start))
