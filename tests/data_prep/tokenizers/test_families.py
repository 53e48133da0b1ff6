"""The tokenizers of published families: their roles, their frames, and ids as transformers makes them."""

from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from deepsiam.data_prep.tokenizers import tokenizer
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
