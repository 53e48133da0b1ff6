"""Published tokenizer.json files: ids as transformers makes them, special tokens, prompts; what they may not do."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerFast

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import bounds, tokenizer, unknown
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from tests.data_prep.tokenizers.families import FAMILIES, WORDS, bpe, odd_strings, template, unigram, wordpiece


def framed(backend: Tokenizer, cls: str, sep: str) -> Tokenizer:
    backend.post_processor = template(backend, f"{cls} $A {sep}", f"{cls} $A {sep} $B {sep}")
    return backend


@pytest.mark.parametrize(
    ("make", "special", "names"),
    [
        # mixtures; then padding that only `padding` names, and no mask
        (unigram, "<pad> <unk> [CLS] [SEP] [MASK]", "<pad> <unk> [CLS] [SEP] [MASK]"),
        (wordpiece, "<s> <pad> </s> [UNK] <mask> [PAD] [CLS]", "<pad> [UNK] <s> </s> <mask>"),
        (bpe, "<|begin|> <|end|> <|pad|> <unk> <|mask|>", "<|pad|> <unk> <|begin|> <|end|> <|mask|>"),
        (wordpiece, "<blank> [UNK] [CLS] [SEP] [MASK]", "<blank> [UNK] [CLS] [SEP] [MASK]"),
        (unigram, "<pad> <unk> [CLS] [SEP] <hidden>", "<pad> <unk> [CLS] [SEP]"),
    ],
)
def test_a_file_says_what_its_special_tokens_are(
    make: Callable[[list[str]], Tokenizer], special: str, names: str, tmp_path: Path
) -> None:
    tokens, roles = special.split(), dict(zip(("pad", "unk", "cls", "sep", "mask"), names.split(), strict=False))
    backend = framed(make(tokens), roles["cls"], roles["sep"])
    backend.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    backend.enable_padding(length=16, pad_id=tokens.index(roles["pad"]), pad_token=roles["pad"])
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)
    assert tok.special_tokens == roles
    assert tok.special == tuple(tokens.index(token) for token in roles.values())
    assert (tok.mask is None) == ("mask" not in roles)
    # the same tokens where the file is alone, as in shards and checkpoints
    (tmp_path / "shards").mkdir()
    shutil.copy(tmp_path / "tokenizer.json", tmp_path / "shards")
    assert tokenizer.load(tmp_path / "shards").special_tokens == roles


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (Tokenizer(models.WordPiece({"a": 0}, unk_token="[UNK]")), r"lacks \[UNK\] for what its WordPiece model does"),
        (Tokenizer(models.Unigram([("a", 0.0)])), "lacks a token for what its Unigram model does not know"),
        (Tokenizer(models.BPE({"a": 0}, [])), r"the vocabulary lacks \[PAD\] .*; use a tokenizer.json that marks its"),
        (Tokenizer(models.BPE({}, [])), "no token of its vocabulary is found in a text"),
        (
            framed(wordpiece(["[UNK]", "[CLS]", "[SEP]"]), "[CLS]", "[SEP] [SEP] [SEP] [SEP]"),
            r"post_processor makes 1 \+ 4 tokens around a text \(.*\), and at most 4 are supported",
        ),
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
    *(start + WORDS for start in " \n\u3000"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_the_joined_text(family: str, tmp_path: Path) -> None:
    tok = tokenizer.load(FAMILIES[family].write(tmp_path / family) / "tokenizer.json")
    word, blank = tok.encode(["a", " a"])
    keeps_blanks = word.tolist() != blank.tolist()
    for i, prompt in enumerate(PROMPTS):
        before, texts, compared = tok.prompt(prompt), TEXTS[i % 3 :: 3], 0
        alone, joined = tok.encode(texts), tok.encode([prompt + text for text in texts])
        for text, ids, expected in zip(texts, alone, joined, strict=True):
            if _is_known(keeps_blanks, tok.unk, text, ids):
                assert before.before(ids).tolist() == expected.tolist(), (prompt, text)
                compared += 1
        assert compared > 15


def _is_known(keeps_blanks: bool, unk: int | None, text: str, ids: np.ndarray) -> bool:
    """Whether the ids of a text tell how it begins: not with an unknown token or a dropped blank."""
    odd = " \t\r\n▁\u00a0\u3000\u200b\u200d\ufeff\x00\x7f\u0301\u00ad"
    return not text or (unk not in ids[:2] and (keeps_blanks or text[0] not in odd))


@pytest.mark.parametrize("family", ["bert", "qwen2", "gemma", "xlm-roberta"])
def test_as_much_of_a_text_fits_as_has_room_behind_the_prompt(family: str, tmp_path: Path) -> None:
    tok = tokenizer.load(FAMILIES[family].write(tmp_path / family) / "tokenizer.json")
    for prompt in PROMPTS[:2]:
        before, (ids, expected) = tok.prompt(prompt), tok.encode([WORDS, prompt + WORDS])
        for most in range(len(before.ids) + 8, len(expected) + 3):
            fitting = before.fitting(ids, most)
            assert before.before(fitting)[:most].tolist() == expected[:most].tolist()
            assert len(before.before(fitting)) <= most


def test_a_vocabulary_alone_has_no_prompt() -> None:
    with pytest.raises(ValueError, match="the prompt 'query: ' needs a tokenizer"):
        Vocabulary(40, 0, 1, 2, 3, 4).prompt("query: ")


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_and_pairs_have_the_ids_of_transformers(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    tok = tokenizer.load(family.write(tmp_path))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert tok.special_tokens == family.named()
    # what no text should learn
    assert {tok.vocabulary()[token] for token in tok.special_tokens.values()} == {*tok.special}
    assert tok.pad in tok.special
    assert tok.mask is None or tok.mask not in (tok.pad, tok.unk, tok.cls, tok.sep)
    texts = odd_strings()
    assert len(texts) == 200
    rows = [ids.tolist() for ids in tok.encode(texts)]
    assert rows == theirs(texts, add_special_tokens=False)["input_ids"]
    (before, after), (start, between, end) = tok.text_frame, tok.pair_frame
    assert [[*before, *ids, *after] for ids in rows] == theirs(texts)["input_ids"]
    pairs = [[*start, *a, *between, *b, *end] for a, b in zip(rows, reversed(rows), strict=True)]
    assert pairs == theirs(texts, texts[::-1])["input_ids"]
    ids = tok.vocabulary()
    assert (tok.text_frame, tok.pair_frame) == tuple(
        tuple(tuple(ids[token] for token in part.split()) for part in parts) for parts in (family.text, family.pair)
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_where_words_begin(name: str, tmp_path: Path) -> None:
    tok = tokenizer.load(FAMILIES[name].write(tmp_path))
    ids, sentences = tok.vocabulary(), [WORDS, "its crew had sailed.", "12 loaves"]
    ((_, encoded),) = tok.encode_batches([(0, sentences)], sentences=True)
    assert np.concatenate(encoded).tolist() == tok.encode([" ".join(sentences)])[0].tolist()
    mark = next((mark for mark in "▁Ġ" if f"{mark}the" in ids), "")
    plain = [token for token in ids if token.replace(mark, "").isascii()]
    words = {ids[token] for token in plain if token.startswith(mark) and token.removeprefix(mark).isalnum()}
    assert {ids[token] for token in plain} & {*tok.words} == words
    assert len(words) > 10


def test_an_old_folder_of_sentence_transformers_has_it_beside_its_encoder(tmp_path: Path) -> None:
    file = FAMILIES["bert"].write(tmp_path / "0_Transformer") / "tokenizer.json"
    found, named = tokenizer.load(tmp_path), tokenizer.load(file)
    assert (found.path, found.fingerprint) == (file, named.fingerprint)
    assert not found.split_special_tokens  # as the tokenizer_config.json beside it says


ADAPTERS, NAME = json.dumps({"base_model_name_or_path": "some/base"}), "name a folder with config.json, tokenizer.json"


@pytest.mark.parametrize(
    ("files", "named", "message"),
    [
        ({"adapter_config.json": ADAPTERS}, "", "adapters are not supported: merge them into their base, 'some/base' "),
        ({"m.gguf": ""}, "", f"m.gguf: is a model in GGUF.*: {NAME}"),
        ({"m.gguf": ""}, "m.gguf", f"m.gguf: is a model in GGUF.*: {NAME}"),
        ({"snapshots/abc/tokenizer.json": ""}, "", "name a folder in it, .*snapshots/abc$"),
        ({"m.gguf": "", "vocab.txt": ""}, "", "tokenizer.json: is missing, and vocab.txt of an older tokenizer is"),
        ({"m.gguf": "", "vocab.txt": ""}, "mistyped", "mistyped: cannot read: No such file"),
    ],
    ids=["adapters", "GGUF in a folder", "GGUF", "the hub's cache", "vocab.txt", "another name"],
)
def test_other_forms_are_one_line(tmp_path: Path, files: dict[str, str], named: str, message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as error:
        tokenizer.load(tmp_path / named)
    assert "\n" not in str(error.value)


def test_the_share_of_unknown_tokens_is_described_and_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [np.array([7, 1, 8, 9]), np.full(96, 5)]
    assert unknown.describe(tokens, 1, "data") == "unknown tokens: 1.00 % of 100 in a sample"
    assert capsys.readouterr().err == ""
    assert unknown.describe([*tokens, np.array([1])], 1, "data") == "unknown tokens: 1.98 % of 101 in a sample"
    assert capsys.readouterr().err.startswith("warning: data: 1.98 % of the tokens are unknown ([UNK])")
    assert unknown.describe([], 1, "data") == "unknown tokens: 0.00 % of 0 in a sample"


def test_no_more_is_read_than_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown, "SAMPLE", 6)
    tokens = iter([np.array([1, 2, 3, 1]), np.array([2, 2, 1, 1]), np.array([1])])
    assert unknown.describe(tokens, 1, "data").endswith("33.33 % of 6 in a sample")
    assert len(list(tokens)) == 1


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
    steps = [replace(" ", "▁"), replace("…", "..."), replace(" {2,}", " ", "Regex")]
    kinds = [{"type": "Prepend", "prepend": "▁"}, {"type": "NFKD"}, charsmap("صلى الله عليه وسلم".encode())]
    content = {"normalizer": sequence("normalizers", *steps, *kinds), "pre_tokenizer": BYTES, "model": {}}
    bounds.require_bounded(content)


def test_a_pattern_that_takes_too_long_on_a_text_is_one_clear_line(small: tokenizer.Tokenizer, tmp_path: Path) -> None:
    record = json.loads(small.path.read_bytes()) | {"pre_tokenizer": split("(a+)+$")}
    (tmp_path / "t.json").write_text(json.dumps(record))
    loaded = tokenizer.load(tmp_path / "t.json")
    with pytest.raises(InputError, match=r"t.json: fails at a text \(.*limit.*\); use another tokenizer"):
        loaded.encode(["a" * 40 + "b"])
