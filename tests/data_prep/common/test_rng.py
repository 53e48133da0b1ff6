"""Random numbers keyed by a name: the same name repeats them, another name gives others."""

import numpy as np

from deepsiam.data_prep.common.rng import keyed_rng


def test_a_name_alone_determines_the_numbers() -> None:
    np.random.seed(1)
    first = keyed_rng("wikipedia/12").integers(1000, size=50)
    np.random.seed(2)
    assert np.array_equal(first, keyed_rng("wikipedia/12").integers(1000, size=50))


def test_names_that_are_nearly_equal_have_unrelated_numbers() -> None:
    drawn = np.array([keyed_rng(f"a#{number}").integers(100) for number in range(2000)])
    assert abs(drawn.mean() - 49.5) < 3  # its standard deviation is 0.65
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.12  # its standard deviation is 0.022
