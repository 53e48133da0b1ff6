import numpy as np
import pytest

from models.mlm import MlmBatcher
from models.seed import SeedBatcher
from models.siamese import SiameseBatcher
from models.task import Batcher, Vocabulary
from tests.models.tiny import VOCABULARY


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
        SiameseBatcher(VOCABULARY, Corpus(), np.arange(3), max_query_tokens=8, max_document_tokens=8),
    ]
    assert [batcher.examples([]) for batcher in batchers] == [[], [], []]


def test_tokens_are_counted_by_the_masks():
    batcher = MlmBatcher(VOCABULARY, 16)
    examples = batcher.examples([[np.array([7, 8]), np.array([9])]])
    assert batcher.micro_batch(examples, [np.random.default_rng(0)]).tokens == 6  # [CLS] 7 8 [SEP] 9 [SEP]
