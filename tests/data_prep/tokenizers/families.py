"""Small tokenizers in the layout of each published family, and strings that are read in odd ways."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = (
    "the ship of bread was old and its crew had sailed a long way to sell what they baked each day: 12 loaves, 3 pies"
)
TEXTS = [
    WORDS,
    WORDS.upper(),
    WORDS.title(),
    "it's <s> not </s> theirs, isn't it? naïve café ÅNGSTRÖM straße",
    "x = y**2",
]
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
# how Llama 3 and, with single digits, Qwen cut a text into words
WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def special(token: str, **how: bool) -> AddedToken:
    """A token that a file marks as special."""
    return AddedToken(token, special=True, normalized=False, **how)


def template(backend: Tokenizer, single: str, pair: str) -> processors.PostProcessor:
    """A post-processor by its templates, with the tokens that they name."""
    names = {name.split(":")[0] for name in f"{single} {pair}".split() if not name.startswith("$")}
    ids = [(name, backend.token_to_id(name)) for name in sorted(names)]
    return processors.TemplateProcessing(single=single.split(), pair=pair.split(), special_tokens=ids)


@cache
def pieces(byte_level: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The vocabulary and the merges of a small BPE: of bytes, or of characters with ▁ for a blank."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else pre_tokenizers.Metaspace()
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if byte_level else []
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    if byte_level:  # as Qwen's and Llama 3's, where marks are read with the letters or line breaks after them
        merges += [(first, second) for first in '.?("Ċ' for second in "tĊ"]
    return tuple(dict.fromkeys([*model["vocab"], *("".join(merge) for merge in merges)])), tuple(merges)


def bpe(first: Sequence[str], last: Sequence[str] = (), *, byte_level: bool = True, **keys: object) -> Tokenizer:
    """A BPE whose vocabulary has tokens before and after the pieces."""
    vocabulary, merges = pieces(byte_level)
    ids = {token: i for i, token in enumerate(dict.fromkeys([*first, *vocabulary, *last]))}
    backend = Tokenizer(models.BPE(ids, list(merges), **keys))
    if byte_level:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    return backend


def words(digits: int) -> pre_tokenizers.PreTokenizer:
    """Words and runs of digits, as bytes."""
    split = pre_tokenizers.Split(Regex(WORD.replace("DIGITS", str(digits))), "isolated")
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, bytes_alone])


def sentencepiece_bpe(first: Sequence[str], prepend: bool) -> Tokenizer:
    """A BPE of characters that falls back to bytes, as Llama 2's, Mistral's and Gemma's."""
    backend = bpe([*first, *BYTES], byte_level=False, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    blank = normalizers.Replace(" ", "▁")
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), blank]) if prepend else blank
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def wordpiece(first: Sequence[str]) -> Tokenizer:
    """BERT's WordPiece, lower-cased."""
    words = [*WORDS.replace(",", " ,").replace(":", " :").split(), *"abcdefghijklmnopqrstuvwxyz0123456789.,:'<>/[]?"]
    tokens = dict.fromkeys([*first, *words, *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789")])
    unk = "[UNK]"
    backend = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token=unk))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def unigram(first: Sequence[str], last: Sequence[str] = (), unk: str = "<unk>") -> Tokenizer:
    """A Unigram model with ▁ for a blank, as sentencepiece's files are converted."""
    words = dict.fromkeys(f"▁{word}" for word in WORDS.split())
    scored = [(word, -4.0) for word in words] + [
        (c, -8.0 - i / 100) for i, c in enumerate(sorted({*"▁", *"".join(TEXTS)}))
    ]
    all_pieces = [*((token, 0.0) for token in first), *scored, *((token, 0.0) for token in last)]
    backend = Tokenizer(models.Unigram(all_pieces, unk_id=list(first).index(unk)))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


_BEGIN, _END = "<|begin_of_text|>", "<|endoftext|>"
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT_FRAMES = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
ROBERTA_FRAMES = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")


def finished(backend: Tokenizer, tokens: Sequence[str], *frames: str, mask: str = "") -> Tokenizer:
    """Mark tokens as special, the mask with the blanks before it, and give texts and pairs their frames."""
    backend.add_special_tokens([special(token) for token in tokens])
    backend.add_special_tokens([special(mask, lstrip=True)] if mask else [])
    if frames:
        backend.post_processor = template(backend, *frames)
    return backend


def bert() -> Tokenizer:
    """Also DistilBERT's and ELECTRA's."""
    return finished(wordpiece(BERT_TOKENS), BERT_TOKENS, *BERT_FRAMES)


def mpnet() -> Tokenizer:
    """<unk> is an ordinary word of it."""
    backend = wordpiece(["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"])
    return finished(backend, ["<s>", "<pad>", "</s>", "[UNK]"], *ROBERTA_FRAMES, mask="<mask>")


def roberta() -> Tokenizer:
    backend = finished(bpe(ROBERTA_TOKENS[:4], ["<mask>"]), ROBERTA_TOKENS[:4], mask="<mask>")
    ids = [(token, backend.token_to_id(token)) for token in ("</s>", "<s>")]
    backend.post_processor = processors.RobertaProcessing(*ids, trim_offsets=True, add_prefix_space=False)
    return backend


def xlm_roberta() -> Tokenizer:
    backend = unigram(ROBERTA_TOKENS[:4], ["<mask>"])
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return finished(backend, ROBERTA_TOKENS[:4], *ROBERTA_FRAMES, mask="<mask>")


def albert() -> Tokenizer:
    tokens = ["<pad>", "<unk>", "[CLS]", "[SEP]"]
    backend = unigram([*tokens, "[MASK]"])
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
    backend.normalizer = normalizers.Sequence([*steps, normalizers.StripAccents(), normalizers.Lowercase()])
    return finished(backend, tokens, *BERT_FRAMES, mask="[MASK]")


def deberta_v2() -> Tokenizer:
    """The mask token comes after all others; also DeBERTa-v3's."""
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    backend = unigram(tokens, unk="[UNK]")
    backend.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC()])
    return finished(backend, [*tokens, "[MASK]"], *BERT_FRAMES)


def modernbert() -> Tokenizer:
    """Runs of blanks are added tokens, which are not special."""
    backend = bpe(["|||IP_ADDRESS|||"])
    backend.normalizer = normalizers.NFC()
    backend.add_tokens([AddedToken(" " * n, normalized=True) for n in (4, 3, 2)])
    finished(backend, ["[UNK]", "[CLS]", "[SEP]", "[PAD]"], mask="[MASK]")
    backend.add_tokens([AddedToken("[unused0]", normalized=True)])
    return finished(backend, [], *BERT_FRAMES)


def t5() -> Tokenizer:
    tokens = ["<pad>", "</s>", "<unk>"]
    return finished(unigram(tokens), [*tokens, "<extra_id_1>", "<extra_id_0>"], "$A </s>", "$A </s> $B </s>")


def gpt2() -> Tokenizer:
    backend = finished(bpe([], ["<|endoftext|>"]), ["<|endoftext|>"])
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def opt() -> Tokenizer:
    """A text begins with </s>, which also ends one."""
    return finished(bpe(ROBERTA_TOKENS[:4]), ["</s>", "<pad>", "<unk>"], "</s> $A", "</s> $A </s> $B")


def qwen2() -> Tokenizer:
    """Nothing is around a text, and some added tokens are words."""
    backend = bpe([])
    backend.normalizer, backend.pre_tokenizer = normalizers.NFC(), words(digits=1)
    finished(backend, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    backend.add_tokens([AddedToken(token, normalized=False) for token in ("<tool_call>", "<think>", "</think>")])
    backend.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    return backend


def qwen3_embedding() -> Tokenizer:
    """A text ends with <|endoftext|>, which is also padding."""
    backend = qwen2()
    frames = template(backend, "$A <|endoftext|>", "$A <|endoftext|> $B <|endoftext|>")
    backend.post_processor = processors.Sequence([backend.post_processor, frames])
    return backend


def llama3(*more: str, after: str = "") -> Tokenizer:
    """A text begins with <|begin_of_text|>, and so does the second of a pair."""
    backend = bpe([], ignore_merges=True)
    backend.pre_tokenizer = words(digits=3)
    finished(backend, [_BEGIN, "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|eot_id|>", *more])
    frames = template(backend, f"{_BEGIN} $A {after}", f"{_BEGIN} $A {after} {_BEGIN}:1 $B:1 {after and after + ':1'}")
    backend.post_processor = processors.Sequence([processors.ByteLevel(), frames])
    return backend


def eurobert() -> Tokenizer:
    """Llama 3's with a mask token; a text also ends."""
    return llama3("<|mask|>", after="<|end_of_text|>")


def mistral() -> Tokenizer:
    """There is no token for padding."""
    tokens = ["<unk>", "<s>", "</s>"]
    return finished(sentencepiece_bpe(tokens, prepend=True), tokens, "<s> $A", "<s> $A <s>:1 $B:1")


def llama() -> Tokenizer:
    """As transformers 5 writes Llama 2's and Mistral's: the first word alone gets a blank, and nothing is split."""
    backend = mistral()
    backend.normalizer, backend.pre_tokenizer = None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence([backend.decoder, decoders.Strip(" ", 1, 0)])
    return backend


def gemma() -> Tokenizer:
    """<s> and </s> are words of it, tags of HTML."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    backend = sentencepiece_bpe([*tokens, "<s>", "</s>"], prepend=False)
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    finished(backend, tokens, "<bos> $A", "<bos> $A <bos>:1 $B:1")
    backend.add_tokens([AddedToken(token, normalized=False) for token in ("<s>", "</s>")])
    return backend


@dataclass(frozen=True)
class Family:
    """How a family's file is made, and what should be found in it: names in the order pad, unk, cls, sep, mask."""

    make: Callable[[], Tokenizer]
    roles: str  # "-" where there is none
    text: tuple[str, str]  # before and after
    pair: tuple[str, str, str]  # before, between and after

    def write(self, folder: Path) -> Path:
        """Write the file as that of an encoder: tokens that are spelled out in a text are found."""
        folder.mkdir(parents=True, exist_ok=True)
        self.make().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text("{}")
        return folder

    def named(self) -> dict[str, str]:
        """The special tokens by role."""
        roles = zip(("pad", "unk", "cls", "sep", "mask"), self.roles.split(), strict=True)
        return {role: token for role, token in roles if token != "-"}


_CLS, _S = (("[CLS]", "[SEP]"), ("[CLS]", "[SEP]", "[SEP]")), (("<s>", "</s>"), ("<s>", "</s> </s>", "</s>"))
FAMILIES: Mapping[str, Family] = {
    "bert": Family(bert, "[PAD] [UNK] [CLS] [SEP] [MASK]", *_CLS),
    "mpnet": Family(mpnet, "<pad> [UNK] <s> </s> <mask>", *_S),
    "roberta": Family(roberta, "<pad> <unk> <s> </s> <mask>", *_S),
    "xlm-roberta": Family(xlm_roberta, "<pad> <unk> <s> </s> <mask>", *_S),
    "albert": Family(albert, "<pad> <unk> [CLS] [SEP] [MASK]", *_CLS),
    "deberta-v2": Family(deberta_v2, "[PAD] [UNK] [CLS] [SEP] [MASK]", *_CLS),
    "modernbert": Family(modernbert, "[PAD] [UNK] [CLS] [SEP] [MASK]", *_CLS),
    "t5": Family(t5, "<pad> <unk> - </s> -", ("", "</s>"), ("", "</s>", "</s>")),
    "gpt2": Family(gpt2, f"{_END} - - {_END} -", ("", ""), ("", "", "")),
    "opt": Family(opt, "<pad> <unk> </s> - -", ("</s>", ""), ("</s>", "</s>", "")),
    "qwen2": Family(qwen2, f"{_END} - - {_END} -", ("", ""), ("", "", "")),
    "qwen3-embedding": Family(qwen3_embedding, f"{_END} - - {_END} -", ("", _END), ("", _END, _END)),
    "llama3": Family(
        llama3, f"<|finetune_right_pad_id|> - {_BEGIN} <|end_of_text|> -", (_BEGIN, ""), (_BEGIN, _BEGIN, "")
    ),
    "eurobert": Family(
        eurobert,
        f"<|finetune_right_pad_id|> - {_BEGIN} <|end_of_text|> <|mask|>",
        (_BEGIN, "<|end_of_text|>"),
        (_BEGIN, f"<|end_of_text|> {_BEGIN}", "<|end_of_text|>"),
    ),
    "mistral": Family(mistral, "</s> <unk> <s> </s> -", ("<s>", ""), ("<s>", "<s>", "")),
    "llama": Family(llama, "</s> <unk> <s> </s> -", ("<s>", ""), ("<s>", "<s>", "")),
    "gemma": Family(gemma, "<pad> <unk> <bos> <eos> <mask>", ("<bos>", ""), ("<bos>", "<bos>", "")),
}


BLANKS = [" ", "  ", "    ", "\t", "\n", "\r\n", *"\u00a0\u3000\u200b\u200d\ufeff\x00\x7f\u0301\u00ad"]
ODD = """
naïve ÅNGSTRÖM Straße ΣΊΣΥΦΟΣ İstanbul 漢字 かな 한국어 שלום مرحبا हिन्दी ไทย ﬁ ½ x² … “q” 's ``q'' 👩‍👩‍👧 🇺🇳 😀 ▁ ##a
[CLS] [SEP] [MASK] [PAD] [UNK] [unused0] <s> </s> <pad> <unk> <mask> <bos> <eos> <extra_id_0> <0x41> <think> </think>
<|endoftext|> <|im_start|> <|begin_of_text|> <|eot_id|> <|mask|> |||IP_ADDRESS|||
3.14 1234567 $5 #1 a_b c++ http://x.y/z?q=1&r=2 me@mail.org - -- (( ))
"""


def odd_strings(number: int = 200) -> list[str]:
    """Strings of blanks, marks, scripts, control characters and special tokens in any order; the same every time."""
    parts = [*WORDS.split(), *ODD.split(), *BLANKS, "a" * 150]
    rng = np.random.default_rng(0)
    made = ["".join(rng.choice(parts, rng.integers(1, 9))) for _ in range(number - len(parts) - 1)]
    return ["", *parts, *made]
