"""What batchers and models have in common: special tokens, counts, vectors that are swapped, positions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.tokenizers.tokenizer import load
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.encode import encode
from deepsiam.models.interface import swap_vectors
from deepsiam.models.pretraining.mlm import MlmBatcher, MlmConfig
from deepsiam.models.registry import MATCHING, METHODS, PRETRAINING
from deepsiam.models.trunk import max_positions
from tests.data_prep.tokenizers.families import FAMILIES
from tests.models.tiny import CONFIG, VOCABULARY, Text, trunk


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


NEEDED = {
    "colbert": {"mask"},
    "clm": {"sep"},
    "ict": set(),
    "pairs": set(),
    "distil": set(),
    "skip_thought": {"cls", "sep"},
}
MASKING = {"cls", "sep", "mask"}
KEYS = {"cross_thought": {"special_tokens": 2}, "cross_encoder": {"negatives_per_query": 1, "separators": 1}}
NAMED = {"cls": r"before a text \(\[CLS\]\)", "sep": r"after a text \(\[SEP\]\)", "mask": r"mask token \(\[MASK\]\)"}


@pytest.mark.parametrize("family", ["qwen3-embedding", "gpt2", "mistral", "gemma", "t5", "eurobert"])
@pytest.mark.parametrize("name", [*PRETRAINING, "colbert", "siamese", "cross_encoder"])
def test_a_method_asks_for_the_tokens_that_it_needs(name: str, family: str, tmp_path: Path) -> None:
    tokenizer = load(FAMILIES[family].write(tmp_path))
    needed = {"siamese": set(), "cross_encoder": {"cls", "sep"}, **NEEDED}.get(name, MASKING)
    missing = {role for role in needed if role not in tokenizer.special_tokens}
    config = METHODS[name](name=name, **KEYS.get(name, {}))
    arguments = [tokenizer] + [Candidates({}, np.arange(0))] * (name in MATCHING)  # type: ignore[arg-type]
    if not missing:
        config.batcher(*arguments)
        return
    with pytest.raises(
        ValueError, match=f"it needs .*({'|'.join(NAMED[role] for role in missing)}), which the tokenizer"
    ):
        config.batcher(*arguments)


def test_causal_language_modelling_needs_no_token_before_a_text(tmp_path: Path) -> None:
    tokenizer = load(FAMILIES["qwen2"].write(tmp_path))
    batcher = PRETRAINING["clm"](name="clm", max_tokens=8).batcher(tokenizer)
    (block,) = batcher.examples([Text([np.array([7, 8]), np.array([9])])])
    assert block.tolist() == [7, 8, tokenizer.sep, 9, tokenizer.sep]
    batch = batcher.micro_batch([block], [np.random.default_rng(0)])
    assert (batch.counts, batch.tokens) == ({"clm": 4}, 3)


def test_longest_input():
    assert max_positions(trunk()) == CONFIG["max_position_embeddings"]
    roberta = trunk(model_type="roberta", max_position_embeddings=12 + 1, pad_token_id=0)
    assert max_positions(roberta) == 12  # positions start at pad_token_id + 1
    ids = torch.full((1, 13), 5)
    encode(roberta, ids[:, :12], ids[:, :12] > 0)
    with pytest.raises((IndexError, RuntimeError)):
        encode(roberta, ids, ids > 0)
