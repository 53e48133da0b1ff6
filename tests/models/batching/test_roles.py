"""Methods that need a special token say so where a tokenizer has none."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.tokenizers.tokenizer import load
from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.registry import MATCHING, PRETRAINING
from tests.data_prep.tokenizers.families import FAMILIES
from tests.models.tiny import Text

NEEDED = {"colbert": {"mask"}, "clm": {"sep"}, "ict": set(), "pairs": set(), "skip_thought": {"cls", "sep"}}
MASKING = {"cls", "sep", "mask"}
KEYS = {"cross_thought": {"special_tokens": 2}, "cross_encoder": {"negatives_per_query": 1, "separators": 1}}
NAMED = {"cls": r"before a text \(\[CLS\]\)", "sep": r"after a text \(\[SEP\]\)", "mask": r"mask token \(\[MASK\]\)"}


@pytest.mark.parametrize("family", ["qwen3-embedding", "gpt2", "mistral", "gemma", "t5", "eurobert"])
@pytest.mark.parametrize("name", [*PRETRAINING, "colbert", "siamese", "cross_encoder"])
def test_a_method_asks_for_the_tokens_that_it_needs(name: str, family: str, tmp_path: Path) -> None:
    tokenizer = load(FAMILIES[family].write(tmp_path))
    needed = {"siamese": set(), "cross_encoder": {"cls", "sep"}, **NEEDED}.get(name, MASKING)
    missing = {role for role in needed if role not in tokenizer.special_tokens}
    config = {**PRETRAINING, **MATCHING}[name](name=name, **KEYS.get(name, {}))
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
