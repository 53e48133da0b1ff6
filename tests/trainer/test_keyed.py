"""Randomness by key."""

import numpy as np

from trainer.keyed import keyed_rng, keyed_rngs


def drawn(rng: np.random.Generator) -> list[float]:
    """Draws of every kind that the batchers make; an odd number of 32-bit ones leaves half a word behind."""
    some = rng.choice(500, 75, replace=False, shuffle=False)
    return [*some, *rng.random(3), rng.integers(2**16, dtype=np.uint32), *rng.integers(30_000, size=5)]


def test_a_generator_set_anew_is_a_new_one() -> None:
    keys = [(1, 2), (1, 3), (7, 0), (1, 2)]
    assert [drawn(rng) for rng in keyed_rngs("example", keys)] == [drawn(keyed_rng("example", *key)) for key in keys]


def test_purpose_and_key_matter() -> None:
    seen = [
        drawn(keyed_rng(purpose, *key)) for purpose, key in [("a", (1, 2)), ("b", (1, 2)), ("a", (2, 1)), ("a", ())]
    ]
    assert all(one != other for number, one in enumerate(seen) for other in seen[:number])
