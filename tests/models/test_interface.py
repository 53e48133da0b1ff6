import numpy as np
import pytest
import torch

from data_prep.tokenizers.vocabulary import Vocabulary
from models.batching.candidates import Candidates
from models.interface import Batcher, Bottleneck, swap_vectors
from models.matching.siamese import SiameseConfig
from models.pretraining.condenser import CondenserBatcher, CondenserConfig
from models.pretraining.mlm import Mlm, MlmBatcher, MlmConfig
from models.pretraining.retromae import RetroMaeBatcher, RetroMaeConfig
from models.pretraining.seed import SeedBatcher, SeedConfig
from tests.models.tiny import VOCABULARY, Text, seed, trunk


class Corpus:
    def tokens(self, i):
        return np.array([5 + i])


@pytest.mark.parametrize("change", [{"mask": 40}, {"cls": -1}, {"sep": 2}])
def test_special_tokens_must_be_distinct_ids_of_the_vocabulary(change):
    with pytest.raises(ValueError, match="special token ids"):
        Vocabulary(**{**VOCABULARY.__dict__, **change})


def test_every_batcher_follows_the_contract():
    batchers: list[Batcher] = [
        MlmBatcher(MlmConfig(name="mlm", max_tokens=16), VOCABULARY),
        SeedBatcher(SeedConfig(name="seed", max_tokens=16), VOCABULARY),
        RetroMaeBatcher(
            RetroMaeConfig(name="retromae", max_tokens=16, blocks="complete", encoder_mask=0.3, decoder_mask=0.5),
            VOCABULARY,
        ),
        CondenserBatcher(CondenserConfig(name="condenser", max_tokens=16), VOCABULARY),
        SiameseConfig(name="siamese").batcher(VOCABULARY, Candidates(Corpus(), np.arange(3))),
    ]
    assert all(batcher.examples([]) == [] for batcher in batchers)


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


def test_a_model_without_swap_or_terms_has_no_bottleneck():
    assert not isinstance(Mlm(trunk()), Bottleneck)
    assert isinstance(seed(), Bottleneck)
