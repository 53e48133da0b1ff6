import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.batching.targets import next_tokens
from deepsiam.models.interface import IGNORED


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
