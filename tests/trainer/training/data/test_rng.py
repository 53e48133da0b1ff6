"""Random numbers by key."""

import numpy as np

from deepsiam.data_prep.common.rng import keyed_rng, keyed_rngs
from deepsiam.trainer.training.data.rng import dropout_seed


def draws(rng: np.random.Generator) -> list[float]:
    """Draw with every call that the batchers use; an odd number of 32-bit draws leaves half a word in the generator."""
    choice = rng.choice(500, 75, replace=False, shuffle=False)
    return [*choice, *rng.random(3), rng.integers(2**16, dtype=np.uint32), *rng.integers(30_000, size=5)]


def test_a_re_keyed_generator_equals_a_new_one() -> None:
    keys = [(1, 2), (1, 3), (7, 0), (1, 2)]
    assert [draws(rng) for rng in keyed_rngs("example", keys)] == [draws(keyed_rng("example", *key)) for key in keys]


def test_every_purpose_and_key_has_its_own_numbers() -> None:
    keys = [("a", (1, 2)), ("b", (1, 2)), ("a", (2, 1)), ("a", ()), ("a", (1,))]
    seen = [draws(keyed_rng(purpose, *key)) for purpose, key in keys]
    assert all(first != second for number, first in enumerate(seen) for second in seen[:number])
    assert len({dropout_seed(1, i) for i in range(100)}) == 100


def test_numpy_s_global_seed_changes_nothing() -> None:
    before = draws(keyed_rng("a", 1, 2))
    np.random.seed(3)
    assert draws(keyed_rng("a", 1, 2)) == before
