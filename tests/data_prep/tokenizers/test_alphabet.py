"""The words and characters that a WordPiece vocabulary is learnt from, and the words of byte-level BPE."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from deepsiam.data_prep.tokenizers import alphabet, tokenizer, wordpiece
from deepsiam.data_prep.tokenizers.alphabet import FEWEST, LONGEST_WORD, learnable
from deepsiam.data_prep.tokenizers.tokenizer import without_long_words

HAN = "".join(map(chr, range(0x4E00, 0x4E00 + 1000)))  # the n-th occurs 1,000 / n times in `chinese`
WIDE = 1 << 30


@pytest.fixture(scope="module")
def chinese() -> list[str]:
    rng = random.Random(1)
    characters = [character for n, character in enumerate(HAN, 1) for _ in range(1000 // n)]
    rng.shuffle(characters)
    return ["".join(characters[start : start + 50]) + "。" for start in range(0, len(characters), 50)]


def test_words_that_become_unknown_are_not_learnt_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fed: list[dict[str, int]] = []
    learn = wordpiece.learn

    def watched(words: dict[str, int], characters: list[str], size: int) -> list[str]:
        fed.append(dict(words))
        return learn(words, characters, size)

    monkeypatch.setattr(wordpiece, "learn", watched)
    longest = "x" * LONGEST_WORD
    tok = tokenizer.train(["fox " * 9, "q" * 400_000, f"{longest} y{longest}"], 60, tmp_path / "t.json")
    assert fed == [{"fox": 9, longest: 1}]
    ids, unknown = tok.encode([longest, f"y{longest}"])
    assert tok.unk not in ids
    assert unknown.tolist() == [tok.unk]


def test_a_text_of_random_words_is_learnt_from_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alphabet, "MOST_CHARACTERS", 12)
    assert learnable({"rare": 1, "fox": 5, "common": 9, "dog": 5}) == {"common": 9, "dog": 5, "fox": 5}
    assert learnable({"fox": 5, "common": 9, "dog": 5}) == {"fox": 5, "common": 9, "dog": 5}


@given(st.text(st.sampled_from("aä中٣1_-=。\u0301 \n"), max_size=20).map(lambda text: text * 40))
def test_byte_level_bpe_gets_no_long_word(text: str) -> None:
    fed = without_long_words(text)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(fed)
    assert all(end - start <= LONGEST_WORD + 1 for _, (start, end) in words)  # a blank belongs to its word
    assert without_long_words(text[:LONGEST_WORD]) == text[:LONGEST_WORD]


def test_the_alphabet_of_latin_text_is_its_commonest_characters() -> None:
    few = {"fox": 9, "dog": 3, "naïve": 1}
    assert alphabet.alphabet(few, WIDE) == sorted(set("foxdgnaïve"))
    words = {"fox": 10**6, **dict.fromkeys(HAN[:400], 1)}
    assert alphabet.alphabet(words, WIDE) == sorted([*"fox", *HAN[: FEWEST - 3]])


def test_the_alphabet_of_chinese_is_as_large_as_the_text_needs(chinese: list[str], tmp_path: Path) -> None:
    tok = tokenizer.train(chinese, 4000, tmp_path / "t.json")
    ids = [i for text_ids in tok.encode(chinese) for i in text_ids.tolist()]
    assert 0 < ids.count(tok.unk) <= 0.0005 * len(ids) + 1
    words = tokenizer._count_words(chinese)
    counts = sorted(words.values(), reverse=True)
    needed = next(n for n in range(len(counts)) if sum(counts[:n]) >= 0.9995 * sum(counts))
    assert len(alphabet.alphabet(words, WIDE)) == needed > 900


def test_a_vocabulary_with_too_little_room_is_named_and_filled(
    chinese: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tok = tokenizer.train(chinese, 605, tmp_path / "t.json")
    assert tok.vocab_size == 605
    said = capsys.readouterr().err
    assert said.startswith("warning: a vocabulary with room for 600 pieces lacks ")
    assert said.endswith("or choose --tokenizer-kind bpe\n")
    tokenizer.train(chinese, 4000, tmp_path / "t.json")
    assert capsys.readouterr().err == ""


def test_characters_that_continue_words_need_two_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    greek = "".join(map(chr, range(0x391, 0x391 + 300)))
    words = {f"x{character}": 100 - n // 10 for n, character in enumerate(greek)}
    assert len(alphabet.alphabet(words, 2 * 280)) == 280  # x only begins words
    assert "lacks 21 of the 301 characters" in capsys.readouterr().err
