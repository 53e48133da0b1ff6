import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.words import STOP_WORDS
from deepsiam.data_prep.tokenizers import alphabet, tokenizer, wordpiece
from deepsiam.data_prep.tokenizers.alphabet import FEWEST, LONGEST_WORD, learnable
from deepsiam.data_prep.tokenizers.tokenizer import ROBERTA_TOKENS, Tokenizer
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from tests.data_prep.conftest import TEXTS
from tests.data_prep.raw import Capture, contents


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer.train(TEXTS * 2, 300, tmp_path_factory.mktemp("bpe") / "tokenizer.json", kind="bpe")


def edited(tok: Tokenizer, path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write a changed copy of the tokenizer.json of `tok` to `path`."""
    record = json.loads(tok.path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    return path


def test_ids_have_no_special_tokens_and_decode_to_the_text(small: Tokenizer) -> None:
    assert (small.pad, small.unk, small.cls, small.sep, small.mask, small.vocab_size) == (0, 1, 2, 3, 4, 120)
    ids, empty = small.encode(["The FOX jumps over the dog.", ""])
    assert ids.dtype == np.uint16
    assert ids.min() > small.mask
    assert small.decode(ids) == "the fox jumps over the dog."
    assert (empty.shape, empty.dtype) == ((0,), np.uint16)
    assert small.encode([]) == []


@given(st.lists(st.lists(st.sampled_from([*TEXTS, ""]), max_size=3), max_size=9))
def test_batches_have_the_ids_of_each_items_texts_in_order(small: Tokenizer, items: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "BATCH", 2)
        encoded = list(small.encode_batches(enumerate(items)))
    assert [number for number, _ in encoded] == list(range(len(items)))
    for texts, (_, ids) in zip(items, encoded, strict=True):
        assert [text_ids.tolist() for text_ids in ids] == [text_ids.tolist() for text_ids in small.encode(texts)]


def test_only_one_batch_of_items_is_read_ahead(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "BATCH", 3)
    read: list[int] = []
    items = ((read.append(number), ["fox"]) for number in range(10))
    next(small.encode_batches(items))
    assert read == [0, 1, 2]


@given(st.text())
def test_bpe_decodes_to_the_encoded_text(bpe: Tokenizer, text: str) -> None:
    ids = bpe.encode([text])[0]
    assert bpe.decode(ids) == text
    assert not set(ids.tolist()) & {bpe.pad, bpe.unk, bpe.cls, bpe.sep, bpe.mask}


def test_bpe_works_in_transformers(bpe: Tokenizer) -> None:
    from transformers import PreTrainedTokenizerFast

    assert (bpe.cls, bpe.pad, bpe.sep, bpe.unk, bpe.mask, bpe.vocab_size) == (0, 1, 2, 3, 4, 300)
    names = {f"{name}_token": token for name, token in bpe.special_tokens.items()}
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(bpe.path), **names)
    text = "The lazy dog\n  does not SEE it, où?"
    ids = theirs(text)["input_ids"]
    assert ids == [bpe.cls, *bpe.encode([text])[0], bpe.sep]
    assert len(ids) < len(text)  # what is common is merged
    assert theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == text
    assert theirs("a <mask>")["input_ids"][-2:] == [bpe.mask, bpe.sep]
    assert len(theirs) == bpe.vocab_size


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("kind", ["small", "bpe"])
def test_a_special_token_in_a_text_is_text(kind: str, copied: bool, request: pytest.FixtureRequest) -> None:
    tok: Tokenizer = request.getfixturevalue(kind)
    tok = pickle.loads(pickle.dumps(tok)) if copied else tok
    for text in ("the [MASK] fox", "the <mask> fox", "<s>[CLS] [SEP]</s>", "[PAD]<pad>[UNK]<unk>"):
        assert not set(tok.encode([text])[0].tolist()) & {tok.pad, tok.cls, tok.sep, tok.mask}
    assert tok.special_tokens["mask"] == tok.decode([tok.mask])


@pytest.mark.parametrize(
    ("beside", "split"),
    [
        ({}, True),  # of data or a run of ours
        ({"config.json": "{}"}, False),  # of an encoder, as transformers reads it
        ({"tokenizer_config.json": "{}"}, False),
        ({"tokenizer_config.json": '{"split_special_tokens": false}'}, False),
        ({"tokenizer_config.json": '{"split_special_tokens": true}', "config.json": "{}"}, True),
    ],
)
def test_a_published_folder_says_whether_special_tokens_in_a_text_are_text(
    small: Tokenizer, tmp_path: Path, beside: dict[str, str], split: bool
) -> None:
    path = edited(small, tmp_path / "tokenizer.json", lambda _: None)
    for name, content in beside.items():
        (tmp_path / name).write_text(content)
    tok = tokenizer.load(path)
    (ids,) = tok.encode(["the [SEP] fox"])
    assert tok.split_special_tokens is split
    assert (tok.sep in ids) is not split
    for copy in (tok.splitting(True), pickle.loads(pickle.dumps(tok.splitting(True)))):
        assert tok.sep not in copy.encode(["the [SEP] fox"])[0]
    the, fox = (ids.tolist() for ids in small.encode(["the", "fox"]))
    assert tok.splitting(False).encode(["the [SEP] fox"])[0].tolist() == [*the, tok.sep, *fox]


@pytest.mark.parametrize("content", ["[]", "{", '{"split_special_tokens": 1}', "[" * 100_000])
def test_a_damaged_file_beside_it_is_refused(small: Tokenizer, tmp_path: Path, content: str) -> None:
    edited(small, tmp_path / "tokenizer.json", lambda _: None)
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(InputError, match=r"tokenizer_config.json: (not a JSON object|split_special_tokens is 1)"):
        tokenizer.load(tmp_path)


def test_only_tokens_that_a_file_adds_are_found_in_texts(bpe: Tokenizer, tmp_path: Path) -> None:
    """MPNet's vocabulary has <unk>, an ordinary word; a file may call its special tokens ordinary."""

    def change(record: dict[str, Any]) -> None:
        record["added_tokens"] = [token for token in record["added_tokens"] if token["content"] != "<unk>"]
        for token in record["added_tokens"]:
            token["special"] = False

    split = tokenizer.load(edited(bpe, tmp_path / "t.json", change))
    assert split.encode(["a <mask> b"])[0].tolist() == bpe.encode(["a <mask> b"])[0].tolist()
    tok = split.splitting(False)
    assert tok.unk not in tok.encode(["a <unk> b"])[0]
    assert tok.mask in tok.encode(["a <mask> b"])[0]


def test_a_file_that_asks_for_dropout_gives_the_same_ids_each_time(bpe: Tokenizer, tmp_path: Path) -> None:
    tok = tokenizer.load(edited(bpe, tmp_path / "t.json", lambda record: record["model"].update(dropout=0.9)))
    for tokenizer_or_copy in (tok, pickle.loads(pickle.dumps(tok))):
        assert tokenizer_or_copy.encode(TEXTS * 5)[-1].tolist() == bpe.encode(TEXTS)[-1].tolist()


def test_training_twice_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from deepsiam.data_prep.tokenizers import tokenizer\n"
        "texts = [f'word{n % 97} Thing{n % 31} abc{n % 13} {n % 89 * 7919:b}' for n in range(2000)]\n"
        "for kind in tokenizer.KINDS: tokenizer.train(texts, 500, Path(sys.argv[1], kind), kind)"
    )
    for threads in ("1", "5"):  # real interpreters: string hashes differ
        (tmp_path / threads).mkdir()
        env = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / threads)], env=env, check=True)
    assert contents(tmp_path / "1") == contents(tmp_path / "5")
    assert contents(tmp_path / "1").keys() == {"wordpiece", "bpe"}


def naive_merges(counts: dict[str, int], size: int) -> list[str]:
    """Train byte pair encoding, recounting all pairs for every merge."""
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
def test_incremental_counts_learn_the_same_pieces_as_repeated_counting(counts: dict[str, int], size: int) -> None:
    alphabet = sorted({c for word in counts for c in word})
    assert wordpiece.learn(counts, alphabet, size) == naive_merges(counts, size)


def test_words_outside_the_alphabet_are_ignored() -> None:
    assert wordpiece.learn({"ab": 3, "aé": 9}, ["a", "b"], 50) == ["a", "b", "##b", "ab"]


@pytest.mark.parametrize(
    ("text", "size", "kind", "said"),
    [
        ("abc", 10, "wordpiece", "--vocab-size 10: is too small, this text needs 11: raise it"),
        ("abc", 260, "bpe", "--vocab-size 260: is too small, this text needs 261"),
        ("  ", 300, "wordpiece", "no text"),
        ("  ", 300, "bpe", "no text"),
        ("abc", 300, "unigram", "of kind 'unigram'; choose one of wordpiece, bpe"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path: Path, text: str, size: int, kind: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        tokenizer.train(["", text], size, tmp_path / "t.json", kind)
    assert not list(tmp_path.iterdir())


def test_bpe_learns_no_token_too_long_to_be_loaded(tmp_path: Path) -> None:
    texts = ["a" * 5000, "=" * 5000, f"x{' ' * 5000}x", "𝄞" * LONGEST_WORD] * 3
    tok = tokenizer.train(texts, 700, tmp_path / "t.json", "bpe")
    assert LONGEST_WORD < max(map(len, tok.vocabulary())) <= 4 * LONGEST_WORD
    assert not {"aa", "==", "ĠĠ"} & tok.vocabulary().keys()


def test_a_missing_or_damaged_file_is_refused(small: Tokenizer, tmp_path: Path) -> None:
    assert tokenizer.load(small.path.parent) == small
    path = tmp_path / "tokenizer.json"
    for named in (path, tmp_path):
        with pytest.raises(InputError, match=f"{path}: cannot read: No such file"):
            tokenizer.load(named)
    for content in (small.path.read_bytes()[:-50], b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a usable tokenizer.json"):
            tokenizer.load(path)


@pytest.mark.parametrize(("kind", "token"), [("small", "[MASK]"), ("bpe", "<mask>"), ("bpe", "</s>")])
def test_incomplete_tokens_are_refused(kind: str, token: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    def remove(record: dict[str, Any]) -> None:
        record.update(added_tokens=[], post_processor=None)
        record["model"]["vocab"]["nope"] = record["model"]["vocab"].pop(token)

    path = edited(request.getfixturevalue(kind), tmp_path / "t.json", remove)
    with pytest.raises(InputError, match=rf"the vocabulary lacks {re.escape(token)};") as refusal:
        tokenizer.load(path)
    names = (*tokenizer.SPECIAL_TOKENS.values(), *ROBERTA_TOKENS.values())
    assert all(name in str(refusal.value) for name in names)


@pytest.mark.parametrize("kind", tokenizer.KINDS)
def test_tokens_of_punctuation_and_stop_words_are_known(kind: str, tmp_path: Path) -> None:
    texts = ["Hello, world! (It costs $5 -- or 50%.) \u201cNo\u201d; a#b \u00bfy t\u00fa? ... a_b \u2026"] * 9
    texts += ["The bathe was a thesis of the cat, and it is not in Athens. the The a"] * 9
    tok = tokenizer.train(texts, 500, tmp_path / "t.json", kind=kind)
    punctuation = {tok.decode([i]).strip() for i in tok.punctuation}
    assert punctuation >= {",", "!", "(", "$", "%", "#", ";", "?", "_", "-", "."}
    assert not any(character.isalnum() or character.isspace() for text in punctuation for character in text)
    assert not set(tok.punctuation) & set(tok.special)
    words = {tok.decode([i]).strip().lower() for i in tok.stop_words} - punctuation
    assert {"the", "a", "of", "and", "it"} <= words <= set(STOPWORDS_EN)
    assert set(tok.punctuation) < set(tok.stop_words)
    hello, cat = (ids.tolist() for ids in tok.encode(["Hello, world!", "The cat, and the thesis"]))
    left = tok.decode([i for i in hello if i not in tok.punctuation])
    assert left.lower().replace(" ", "") == "helloworld"
    assert tok.decode([i for i in cat if i not in tok.stop_words]).split() == ["cat", "thesis"]
    copy = pickle.loads(pickle.dumps(tok))
    assert (copy.punctuation, copy.stop_words) == (tok.punctuation, tok.stop_words)


def test_stop_words_are_those_of_bm25() -> None:
    assert set(STOPWORDS_EN) == STOP_WORDS
    assert Vocabulary(9, pad=0, unk=1, cls=2, sep=3, mask=4).punctuation == ()


def test_a_tokenizer_extends_one_that_lacks_only_its_added_tokens(small: Tokenizer, tmp_path: Path) -> None:
    def more(record: dict[str, Any]) -> None:
        token = {"id": 120, "content": "[Q] ", "single_word": False, "lstrip": False, "rstrip": False}
        record["added_tokens"].append({**token, "normalized": True, "special": False})

    def longer_words(record: dict[str, Any]) -> None:
        record["model"]["vocab"]["zzz"] = 120

    added = tokenizer.load(edited(small, tmp_path / "added.json", more))
    longer = tokenizer.load(edited(small, tmp_path / "longer.json", longer_words))
    assert added.extends(small)
    assert small.extends(small)
    assert not small.extends(added)
    assert not longer.extends(small)  # texts of the other have its pieces instead
    assert not added.extends(longer)


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


def test_too_little_room_is_named_and_filled(chinese: list[str], tmp_path: Path, capsys: Capture) -> None:
    tok = tokenizer.train(chinese, 605, tmp_path / "t.json")
    assert tok.vocab_size == 605
    said = capsys.readouterr().err
    assert said.startswith("warning: a vocabulary with room for 600 pieces lacks ")
    assert said.endswith("or choose --tokenizer-kind bpe\n")
    tokenizer.train(chinese, 4000, tmp_path / "t.json")
    assert capsys.readouterr().err == ""


def test_characters_that_continue_words_need_two_pieces(capsys: Capture) -> None:
    greek = "".join(map(chr, range(0x391, 0x391 + 300)))
    words = {f"x{character}": 100 - n // 10 for n, character in enumerate(greek)}
    assert len(alphabet.alphabet(words, 2 * 280)) == 280  # x only begins words
    assert "lacks 21 of the 301 characters" in capsys.readouterr().err
