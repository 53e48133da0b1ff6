import numpy as np
import pytest
import torch

from models.condenser import CondenserBatcher
from models.mlm import Mlm, MlmBatcher
from models.retromae import RetroMaeBatcher
from models.seed import SeedBatcher
from models.siamese import SiameseBatcher
from models.task import Batcher, Bottleneck, Vocabulary, of_another
from tests.models.tiny import VOCABULARY, seed, trunk


class Corpus:
    def tokens(self, i):
        return np.array([5 + i])


@pytest.mark.parametrize("change", [{"mask": 40}, {"cls": -1}, {"sep": 2}])
def test_special_tokens_must_be_distinct_ids_of_the_vocabulary(change):
    with pytest.raises(ValueError, match="special token ids"):
        Vocabulary(**{**VOCABULARY.__dict__, **change})


def test_every_batcher_is_one_to_the_trainer():
    batchers: list[Batcher] = [
        MlmBatcher(VOCABULARY, 16),
        SeedBatcher(VOCABULARY, 16),
        RetroMaeBatcher(VOCABULARY, 16),
        CondenserBatcher(VOCABULARY, 16),
        SiameseBatcher(VOCABULARY, Corpus(), np.arange(3), max_query_tokens=8, max_document_tokens=8),
    ]
    assert all(batcher.examples([]) == [] for batcher in batchers)


def test_tokens_are_counted_by_the_masks():
    batcher = MlmBatcher(VOCABULARY, 16)
    examples = batcher.examples([[np.array([7, 8]), np.array([9])]])
    assert batcher.micro_batch(examples, [np.random.default_rng(0)]).tokens == 6  # [CLS] 7 8 [SEP] 9 [SEP]


@pytest.mark.parametrize(
    ("number", "read"), [(1, [0]), (2, [1, 0]), (3, [2, 0, 1]), (4, [2, 3, 0, 1]), (5, [3, 4, 0, 1, 2])]
)
def test_another_sequences_vector_is_never_ones_own_where_there_is_another(number, read):
    vectors = torch.arange(number).double()[:, None].expand(number, 3)
    assert of_another(vectors)[:, 0].tolist() == read


def test_a_model_without_swap_or_terms_is_no_bottleneck():
    assert not isinstance(Mlm(trunk()), Bottleneck)
    assert isinstance(seed(), Bottleneck)
