"""The case study of Cross-Thought: which sequences are listed, and in which order."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.analysis.cross_thought import SHOWN, case_study

TOKENIZER = SimpleNamespace(vocab_size=100, decode=lambda ids: " ".join(map(str, ids)))
TRAINED: Any = SimpleNamespace(tokenizer=TOKENIZER)
IDS = np.arange(16).reshape(8, 2) + 10
IDS[:, 0] = 200  # a special token of the method
MASK = np.ones((8, 2), dtype=bool)
MASK[7] = False  # padding
ATTENTION = np.full((8, 8), 1 / 8)
ATTENTION[3] = [0.1, 0.05, 0.3, 0.2, 0.15, 0.12, 0.08, 0]


def test_the_sequence_of_least_even_attention_is_chosen_and_the_most_attended_come_first() -> None:
    first, *others = case_study(TRAINED, IDS, MASK, ATTENTION, None)
    assert first == "sequence 3 of 7: 17"
    assert [line.split()[:2] for line in others[:2]] == [["0.300", "2:"], ["0.200", "3"]]
    assert "(itself)" in others[1]
    assert len(others) == SHOWN + 1


def test_a_sequence_of_padding_is_refused() -> None:
    assert next(case_study(TRAINED, IDS, MASK, ATTENTION, 6)).startswith("sequence 6 of 7")
    with pytest.raises(InputError, match="--sequence: 7 is not one of the 7 sequences, numbered from 0"):
        next(case_study(TRAINED, IDS, MASK, ATTENTION, 7))
