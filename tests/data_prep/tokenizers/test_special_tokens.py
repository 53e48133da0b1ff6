"""Special tokens of every family and mixture, as published tokenizer.json files have them."""

import shutil
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer

WORDS = ["a", "b", "the", "ship", "bread"]
ROLES = ("pad", "unk", "cls", "sep", "mask")


def frame(cls: str, sep: str, vocabulary: dict[str, int]) -> processors.PostProcessor:
    template = f"{cls} $A {sep}"
    return processors.TemplateProcessing(template, None, [(cls, vocabulary[cls]), (sep, vocabulary[sep])])


def wordpiece(special: list[str], roles: dict[str, str]) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=roles["unk"]))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.post_processor = frame(roles["cls"], roles["sep"], vocabulary)
    return backend


def unigram(special: list[str], roles: dict[str, str]) -> Tokenizer:
    pieces = [(token, 0.0) for token in special] + [(f"▁{word}", -3.0) for word in WORDS]
    backend = Tokenizer(models.Unigram(pieces, unk_id=special.index(roles["unk"])))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = frame(roles["cls"], roles["sep"], {token: i for i, token in enumerate(special)})
    return backend


def bpe(special: list[str], roles: dict[str, str]) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate([*special, *WORDS[:2]])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.post_processor = processors.RobertaProcessing(
        (roles["sep"], vocabulary[roles["sep"]]), (roles["cls"], vocabulary[roles["cls"]])
    )
    return backend


@pytest.mark.parametrize(
    ("make", "special", "names"),
    [
        (wordpiece, "[PAD] [UNK] [CLS] [SEP] [MASK]", "[PAD] [UNK] [CLS] [SEP] [MASK]"),  # BERT
        (unigram, "<pad> <unk> [CLS] [SEP] [MASK]", "<pad> <unk> [CLS] [SEP] [MASK]"),  # ALBERT
        (unigram, "[PAD] [CLS] [SEP] [UNK] [MASK]", "[PAD] [UNK] [CLS] [SEP] [MASK]"),  # DeBERTa-v3
        (unigram, "<s> <pad> </s> <unk> <mask>", "<pad> <unk> <s> </s> <mask>"),  # XLM-R
        (bpe, "<s> <pad> </s> <unk> <mask>", "<pad> <unk> <s> </s> <mask>"),  # RoBERTa
        (wordpiece, "<s> <pad> </s> <unk> [UNK] <mask>", "<pad> [UNK] <s> </s> <mask>"),  # MPNet
        (wordpiece, "<s> <pad> </s> [UNK] <mask> [PAD] [CLS]", "<pad> [UNK] <s> </s> <mask>"),
        (bpe, "<|begin|> <|end|> <|pad|> <unk> <|mask|>", "<|pad|> <unk> <|begin|> <|end|> <|mask|>"),
    ],
)
def test_a_file_says_what_its_special_tokens_are(make: object, special: str, names: str, tmp_path: Path) -> None:
    roles = dict(zip(ROLES, names.split(), strict=True))
    backend: Tokenizer = make(special.split(), roles)  # type: ignore[operator]
    backend.add_special_tokens([AddedToken(token, special=True) for token in special.split()])
    backend.enable_padding(length=16, pad_id=special.split().index(roles["pad"]), pad_token=roles["pad"])
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)
    assert tok.special_tokens == roles
    assert tok.special == tuple(special.split().index(roles[role]) for role in ROLES)
    # the same tokens where the file is alone, as in shards and checkpoints
    (tmp_path / "shards").mkdir()
    shutil.copy(tmp_path / "tokenizer.json", tmp_path / "shards")
    assert tokenizer.load(tmp_path / "shards").special_tokens == roles


def test_padding_by_a_name_that_only_the_padding_tells(tmp_path: Path) -> None:
    special = ["<blank>", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = wordpiece(special, dict(zip(ROLES, special, strict=True)))
    backend.enable_padding(pad_id=0, pad_token="<blank>")
    backend.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.load(tmp_path).special_tokens["pad"] == "<blank>"


def test_only_padding_and_what_the_model_needs_must_be_there(tmp_path: Path) -> None:
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "<hidden>"]
    backend = unigram(special, dict(zip(ROLES, special, strict=True)))
    backend.save(str(tmp_path / "tokenizer.json"))
    tok = tokenizer.load(tmp_path)
    assert (tok.pad, tok.unk, tok.cls, tok.sep, tok.mask) == (0, 1, 2, 3, None)
    assert tok.special == (0, 1, 2, 3)


def long_frame() -> Tokenizer:
    backend = wordpiece(["[UNK]", "[CLS]", "[SEP]"], {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"})
    ids = [("[CLS]", 1), ("[SEP]", 2)]
    backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP] [SEP] [SEP] [SEP]", None, ids)
    return backend


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
