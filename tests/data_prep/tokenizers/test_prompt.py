"""A prompt before a text: the ids are those that the tokenizer makes of both, for every published family."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.tokenizers.tokenizer import load
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from tests.data_prep.tokenizers.families import FAMILIES, WORDS, odd_strings

PROMPTS = ["query: ", "Instruct: find the ship\nQuery:", "<s>the", "title: none | text: "]
# white space is a token of some tokenizers and part of the next word of others, or left out
PROMPTS += [f"the ship:{end}" for end in ("\n", " \n", "\n\n", "\t", "  ", "\n ", "\u3000", "<think>\n", "</s>")]
PROMPTS += [" ", "\n", "<s>"]
TEXTS = [
    *odd_strings(),
    WORDS,
    " ".join([WORDS] * 4),
    "bread" * 60,
    "1 ship",
    *(start + WORDS for start in (" ", "  ", "\n", "\u3000")),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_the_joined_text(family: str, tmp_path: Path) -> None:
    tokenizer = load(FAMILIES[family].write(tmp_path / family) / "tokenizer.json")
    word, blank = tokenizer.encode(["a", " a"])
    keeps_blanks = word.tolist() != blank.tolist()
    for i, prompt in enumerate(PROMPTS):
        before, texts, compared = tokenizer.prompt(prompt), TEXTS[i % 3 :: 3], 0
        alone, joined = tokenizer.encode(texts), tokenizer.encode([prompt + text for text in texts])
        for text, ids, expected in zip(texts, alone, joined, strict=True):
            if _is_known(keeps_blanks, tokenizer.unk, text, ids):
                assert before.before(ids).tolist() == expected.tolist(), (prompt, text)
                compared += 1
        assert compared > 15


def _is_known(keeps_blanks: bool, unk: int | None, text: str, ids: np.ndarray) -> bool:
    """Whether the ids of a text tell how it begins: not with an unknown token or a dropped blank."""
    odd = " \t\r\n▁\u00a0\u3000\u200b\u200d\ufeff\x00\x7f\u0301\u00ad"
    return not text or (unk not in ids[:2] and (keeps_blanks or text[0] not in odd))


@pytest.mark.parametrize("family", ["bert", "qwen2", "gemma", "xlm-roberta"])
def test_as_much_of_a_text_fits_as_has_room_behind_the_prompt(family: str, tmp_path: Path) -> None:
    tokenizer = load(FAMILIES[family].write(tmp_path / family) / "tokenizer.json")
    for prompt in PROMPTS[:2]:
        before, (ids, expected) = tokenizer.prompt(prompt), tokenizer.encode([WORDS, prompt + WORDS])
        for most in range(len(before.ids) + 8, len(expected) + 3):
            fitting = before.fitting(ids, most)
            assert before.before(fitting)[:most].tolist() == expected[:most].tolist()
            assert len(before.before(fitting)) <= most


def test_a_vocabulary_alone_has_no_prompt() -> None:
    with pytest.raises(ValueError, match="the prompt 'query: ' needs a tokenizer"):
        Vocabulary(40, 0, 1, 2, 3, 4).prompt("query: ")
