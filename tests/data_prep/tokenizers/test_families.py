"""The tokenizers of published families: their roles, their frames, and ids as transformers makes them."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer, unknown
from tests.data_prep.tokenizers.families import FAMILIES, WORDS, odd_strings


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_and_pairs_have_the_ids_of_transformers(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    tok = tokenizer.load(family.write(tmp_path))
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert tok.special_tokens == family.named()
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


@pytest.mark.parametrize("name", FAMILIES)
def test_special_ids_are_those_that_no_text_should_learn(name: str, tmp_path: Path) -> None:
    tok = tokenizer.load(FAMILIES[name].write(tmp_path))
    assert {tok.vocabulary()[token] for token in tok.special_tokens.values()} == {*tok.special}
    assert tok.pad in tok.special
    assert tok.mask is None or tok.mask not in (tok.pad, tok.unk, tok.cls, tok.sep)


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
