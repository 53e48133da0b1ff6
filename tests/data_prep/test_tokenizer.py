import json
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import tokenizer, wordpiece
from data_prep.errors import InputError
from data_prep.tokenizer import Tokenizer


def test_special_tokens_come_first(small: Tokenizer) -> None:
    assert (small.pad, small.unk, small.cls, small.sep, small.mask) == (0, 1, 2, 3, 4)
    assert small.vocab_size == 120


def test_ids_have_no_special_tokens_and_decode_to_the_text(small: Tokenizer) -> None:
    ids, empty = small.encode(["The FOX jumps over the dog.", ""])
    assert ids.dtype == np.uint16
    assert ids.min() > small.mask
    assert small.decode(ids) == "the fox jumps over the dog."
    assert (empty.shape, empty.dtype) == ((0,), np.uint16)
    assert small.encode([]) == []


@pytest.mark.parametrize("copied", [False, True])
def test_a_special_token_spelled_out_in_a_text_is_text(small: Tokenizer, copied: bool) -> None:
    tok = pickle.loads(pickle.dumps(small)) if copied else small
    assert tok.mask not in tok.encode(["the [MASK] fox"])[0]


def test_a_large_vocabulary_has_uint32_ids(large: Tokenizer) -> None:
    ids = large.encode(["fox word69999"])[0]
    assert ids.dtype == np.uint32
    assert ids[-1] == 69_999


def test_training_twice_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from data_prep import tokenizer\n"
        "texts = [f'word{n % 97} thing{n % 31} abc{n % 13}' for n in range(2000)]\n"
        "print(tokenizer.train(texts, 300, Path(sys.argv[1])).fingerprint)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / name)], capture_output=True, check=True, text=True
        ).stdout
        for name in ("a", "b")
    ]
    assert runs[0] == runs[1]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def naive_merges(counts: dict[str, int], size: int) -> list[str]:
    """Byte pair encoding that counts every pair anew for every merge."""
    words = {word: [word[0], *("##" + c for c in word[1:])] for word in counts}
    alphabet = sorted({c for word in counts for c in word})
    continuing = sorted({piece for pieces in words.values() for piece in pieces[1:]})
    vocabulary = dict.fromkeys(alphabet + continuing)
    while len(vocabulary) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                pairs[pair] += counts[word]
        if not pairs or max(pairs.values()) < 2:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = best[0] + best[1].removeprefix("##")
        vocabulary[merged] = None
        for pieces in words.values():
            place = 0
            while place < len(pieces) - 1:
                if (pieces[place], pieces[place + 1]) == best:
                    pieces[place : place + 2] = [merged]
                place += 1
    return list(vocabulary)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=8), st.integers(1, 5), min_size=1, max_size=20),
    st.integers(6, 40),
)
def test_incremental_counts_learn_the_same_pieces_as_counting_anew(counts: dict[str, int], size: int) -> None:
    alphabet = sorted({c for word in counts for c in word})
    assert wordpiece.learn(counts, alphabet, size) == naive_merges(counts, size)


def test_words_outside_the_alphabet_teach_nothing() -> None:
    assert wordpiece.learn({"ab": 3, "aé": 9}, ["a", "b"], 50) == ["a", "b", "##b", "ab"]


def test_too_small_a_vocabulary_and_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="vocabulary of 10 is too small, this text needs 11"):
        tokenizer.train(["abc"], 10, tmp_path / "t.json")
    with pytest.raises(InputError, match="no text"):
        tokenizer.train(["", "  "], 100, tmp_path / "t.json")
    assert not list(tmp_path.iterdir())


def test_a_missing_or_damaged_file_is_refused(small: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(InputError, match="cannot read: No such file"):
        tokenizer.load(path)
    path.write_bytes(small.path.read_bytes()[:-50])
    with pytest.raises(InputError, match="not a usable tokenizer.json"):
        tokenizer.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a usable tokenizer.json"):
        tokenizer.load(path)
    record = json.loads(small.path.read_text())
    record["added_tokens"] = []
    record["post_processor"] = None
    record["model"]["vocab"]["[NOPE]"] = record["model"]["vocab"].pop("[MASK]")
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"lacks \[MASK\]"):
        tokenizer.load(path)
