"""Special tokens of every family and mixture, as published tokenizer.json files have them."""

import base64
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import alphabet, bounds, tokenizer, wordpiece
from deepsiam.data_prep.tokenizers.alphabet import FEWEST, LONGEST_WORD, learnable
from deepsiam.data_prep.tokenizers.tokenizer import load
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from tests.data_prep.raw import Capture
from tests.data_prep.tokenizers.families import FAMILIES, WORDS, bpe, odd_strings, template, unigram
from tests.data_prep.tokenizers.families import wordpiece as wordpiece_of

ROLES = ("pad", "unk", "cls", "sep", "mask")


def framed(backend: Tokenizer, cls: str, sep: str) -> Tokenizer:
    backend.post_processor = template(backend, f"{cls} $A {sep}", f"{cls} $A {sep} $B {sep}")
    return backend


@pytest.mark.parametrize(
    ("make", "special", "names"),
    [
        # mixtures: test_families.py has the families
        (unigram, "<pad> <unk> [CLS] [SEP] [MASK]", "<pad> <unk> [CLS] [SEP] [MASK]"),
        (wordpiece_of, "<s> <pad> </s> [UNK] <mask> [PAD] [CLS]", "<pad> [UNK] <s> </s> <mask>"),
        (bpe, "<|begin|> <|end|> <|pad|> <unk> <|mask|>", "<|pad|> <unk> <|begin|> <|end|> <|mask|>"),
    ],
)
def test_a_file_says_what_its_special_tokens_are(
    make: Callable[[list[str]], Tokenizer], special: str, names: str, tmp_path: Path
) -> None:
    tokens, roles = special.split(), dict(zip(ROLES, names.split(), strict=True))
    backend = framed(make(tokens), roles["cls"], roles["sep"])
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    backend.enable_padding(length=16, pad_id=tokens.index(roles["pad"]), pad_token=roles["pad"])
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)
    assert tok.special_tokens == roles
    assert tok.special == tuple(tokens.index(roles[role]) for role in ROLES)
    # the same tokens where the file is alone, as in shards and checkpoints
    (tmp_path / "shards").mkdir()
    shutil.copy(tmp_path / "tokenizer.json", tmp_path / "shards")
    assert tokenizer.load(tmp_path / "shards").special_tokens == roles


def test_padding_by_a_name_that_only_the_padding_tells(tmp_path: Path) -> None:
    backend = framed(wordpiece_of(["<blank>", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), "[CLS]", "[SEP]")
    backend.enable_padding(pad_id=0, pad_token="<blank>")
    backend.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.load(tmp_path).special_tokens["pad"] == "<blank>"


def test_only_padding_and_what_the_model_needs_must_be_there(tmp_path: Path) -> None:
    backend = framed(unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "<hidden>"]), "[CLS]", "[SEP]")
    backend.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)
    assert (tok.pad, tok.unk, tok.cls, tok.sep, tok.mask) == (0, 1, 2, 3, None)
    assert tok.special == (0, 1, 2, 3)


def long_frame() -> Tokenizer:
    return framed(wordpiece_of(["[UNK]", "[CLS]", "[SEP]"]), "[CLS]", "[SEP] [SEP] [SEP] [SEP]")


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (
            Tokenizer(models.WordPiece({"a": 0}, unk_token="[UNK]")),
            r"lacks \[UNK\] for what its WordPiece model does not",
        ),
        (Tokenizer(models.Unigram([("a", 0.0)])), "lacks a token for what its Unigram model does not know"),
        (Tokenizer(models.BPE({"a": 0}, [])), r"the vocabulary lacks \[PAD\] .*; use a tokenizer.json that marks its"),
        (Tokenizer(models.BPE({}, [])), "no token of its vocabulary is found in a text"),
        (long_frame(), r"post_processor makes 1 \+ 4 tokens around a text \(.*\), and at most 4 are supported"),
    ],
)
def test_what_cannot_be_used_is_named(backend: Tokenizer, message: str, tmp_path: Path) -> None:
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=rf"^{tmp_path}/tokenizer.json: .*{message}"):
        tokenizer.load(tmp_path)


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


def sequence(steps: str, *items: Any) -> dict[str, Any]:
    return {"type": "Sequence", steps: list(items)}


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def charsmap(replacements: bytes) -> dict[str, Any]:
    content = (1024).to_bytes(4, "little") + bytes(1024) + replacements
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def nested(depth: int) -> dict[str, Any]:
    return sequence("normalizers", nested(depth - 1)) if depth else {"type": "NFC"}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TWICE = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 3, "special_tokens": {}}


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (
            "normalizer",
            sequence("normalizers", *[replace("q", "qq")] * 40),
            "makes 512 characters or more of 8, as of 'q'",
        ),
        ("normalizer", sequence("normalizers", *[replace("x", "yy"), replace("y", "xx")] * 9), "makes 512 characters"),
        ("normalizer", sequence("normalizers", *[replace(r"\d", "12", "Regex")] * 40), "makes 512 characters"),
        ("normalizer", replace("fox", "dog" * 999), "makes 23,976 characters or more of 24, as of 'fox'"),
        ("normalizer", {"type": "Prepend", "prepend": "z" * 999}, "makes 1,007 characters"),
        ("normalizer", sequence("normalizers", *[{"type": "NFC"}] * 65), "has 65 steps, and at most 64 are supported"),
        ("normalizer", nested(9), "has steps within steps more than 8 deep"),
        ("normalizer", charsmap(b"a\0" + b"b" * 999), "precompiled_charsmap is larger, or makes more of a character"),
        ("pre_tokenizer", sequence("pretokenizers", *[BYTES] * 30), "characters or more of 8"),
        ("pre_tokenizer", split("a?" * 5000), "has patterns of more than 8,192 characters"),
        ("decoder", sequence("decoders", *[replace("a", "aa")] * 50), "makes 512 characters"),
        ("post_processor", sequence("processors", *[TWICE] * 40), "has a text 3 times"),
        ("post_processor", {"type": "TemplateProcessing", "single": [{}] * 257}, "has a list of 257 items"),
        ("model", {"max_input_chars_per_word": 10**9}, "max_input_chars_per_word is above 1,000"),
        ("model", {"continuing_subword_prefix": "#" * 101}, "continuing_subword_prefix has more than 100 characters"),
        ("added_tokens", [{}] * 50_001, "has more than 50,000 items"),
    ],
)
def test_growth_is_bounded(small: tokenizer.Tokenizer, tmp_path: Path, part: str, value: Any, message: str) -> None:
    record = json.loads(small.path.read_bytes())
    record[part] = record[part] | value if part == "model" else value
    (tmp_path / "t.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="t.json: not a usable tokenizer.json") as refusal:
        tokenizer.load(tmp_path / "t.json")
    assert part in str(refusal.value)
    assert message in str(refusal.value)


def test_what_published_files_do_is_in_bounds() -> None:
    steps = [
        replace(" ", "▁"),
        replace("…", "..."),
        replace(" {2,}", " ", "Regex"),
        {"type": "Prepend", "prepend": "▁"},
    ]
    kinds = [{"type": "NFKD"}, {"type": "Lowercase"}, charsmap("صلى الله عليه وسلم".encode())]
    content = {"normalizer": sequence("normalizers", *steps, *kinds), "pre_tokenizer": BYTES, "model": {}}
    bounds.require_bounded(content)


def test_a_pattern_that_takes_too_long_on_a_text_is_one_clear_line(small: tokenizer.Tokenizer, tmp_path: Path) -> None:
    record = json.loads(small.path.read_bytes()) | {"pre_tokenizer": split("(a+)+$")}
    (tmp_path / "t.json").write_text(json.dumps(record))
    loaded = tokenizer.load(tmp_path / "t.json")
    with pytest.raises(InputError, match=r"t.json: fails at a text \(.*limit.*\); use another tokenizer"):
        loaded.encode(["a" * 40 + "b"])
