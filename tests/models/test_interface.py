"""What batchers and models have in common: special tokens, counts, vectors that are swapped, positions."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.tokenizers.tokenizer import load
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.encode import encode
from deepsiam.models.interface import swap_vectors
from deepsiam.models.registry import MATCHING, METHODS, PRETRAINING
from deepsiam.models.trunk import max_positions
from tests.data_prep.tokenizers.families import FAMILIES
from tests.models.tiny import CONFIG, VOCABULARY, Text, trunk


@pytest.mark.parametrize("change", [{"mask": 40}, {"cls": -1}, {"sep": 2}])
def test_special_tokens_must_be_distinct_ids_of_the_vocabulary(change):
    with pytest.raises(ValueError, match="special token ids"):
        Vocabulary(**{**VOCABULARY.__dict__, **change})


@pytest.mark.parametrize(
    ("number", "read"), [(1, [0]), (2, [1, 0]), (3, [2, 0, 1]), (4, [2, 3, 0, 1]), (5, [3, 4, 0, 1, 2])]
)
def test_swapping_gives_another_sequences_vector_unless_there_is_only_one(number, read):
    vectors = torch.arange(number).double()[:, None].expand(number, 3)
    assert swap_vectors(vectors)[:, 0].tolist() == read


FRAME, MASKING = {"cls", "sep"}, {"cls", "sep", "mask"}
NEEDED = {
    **dict.fromkeys(["ict", "pairs", "distil", "siamese"], set()),
    "colbert": {"mask"},
    "clm": {"sep"},
    "skip_thought": FRAME,
    "cross_encoder": FRAME,
}
KEYS = {"cross_thought": {"special_tokens": 2}, "cross_encoder": {"negatives_per_query": 1, "separators": 1}}
NAMED = {"cls": r"before a text \(\[CLS\]\)", "sep": r"after a text \(\[SEP\]\)", "mask": r"mask token \(\[MASK\]\)"}


@pytest.mark.parametrize("family", ["qwen3-embedding", "gpt2", "mistral", "gemma"])
@pytest.mark.parametrize("name", [*PRETRAINING, "colbert", "siamese", "cross_encoder"])
def test_a_method_asks_for_the_tokens_that_it_needs(name: str, family: str, tmp_path: Path) -> None:
    tokenizer = load(FAMILIES[family].write(tmp_path))
    missing = NEEDED.get(name, MASKING) - tokenizer.special_tokens.keys()
    config = METHODS[name](name=name, **KEYS.get(name, {}))
    arguments = [tokenizer] + [Candidates({}, np.arange(0))] * (name in MATCHING)  # type: ignore[arg-type]
    words = f"it needs .*({'|'.join(NAMED[role] for role in missing)}), which the tokenizer"
    with pytest.raises(ValueError, match=words) if missing else nullcontext():
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
