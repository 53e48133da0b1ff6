import numpy as np
import pytest
import torch

from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.interface import swap_vectors
from deepsiam.models.pretraining.mlm import MlmBatcher, MlmConfig
from tests.models.tiny import VOCABULARY, Text


@pytest.mark.parametrize("change", [{"mask": 40}, {"cls": -1}, {"sep": 2}])
def test_special_tokens_must_be_distinct_ids_of_the_vocabulary(change):
    with pytest.raises(ValueError, match="special token ids"):
        Vocabulary(**{**VOCABULARY.__dict__, **change})


def test_tokens_of_text_are_counted_without_special_tokens():
    batcher = MlmBatcher(MlmConfig(name="mlm", max_tokens=16), VOCABULARY)
    examples = batcher.examples([Text([np.array([7, 8]), np.array([9])])])
    assert batcher.micro_batch(examples, [np.random.default_rng(0)])[1:] == ({"mlm": 1}, 3)  # [CLS] 7 8 [SEP] 9 [SEP]


@pytest.mark.parametrize(
    ("number", "read"), [(1, [0]), (2, [1, 0]), (3, [2, 0, 1]), (4, [2, 3, 0, 1]), (5, [3, 4, 0, 1, 2])]
)
def test_swapping_gives_another_sequences_vector_unless_there_is_only_one(number, read):
    vectors = torch.arange(number).double()[:, None].expand(number, 3)
    assert swap_vectors(vectors)[:, 0].tolist() == read
