"""A lower-cased WordPiece tokenizer (BERT style), kept as one Hugging Face `tokenizer.json`."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from data_prep import wordpiece
from data_prep.errors import InputError
from data_prep.files import LARGEST_JSON, read_bytes, whole_file

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
LONGEST_TOKEN = 1000  # characters
MAX_ALPHABET = 256  # rarer characters than the 256 commonest of English text become [UNK]


@dataclass(frozen=True)
class Tokenizer:
    """A loaded tokenizer.json; its fingerprint is the SHA-256 (hex) of the file's bytes."""

    path: Path
    fingerprint: str
    vocab_size: int
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int
    _backend: tokenizers.Tokenizer = field(repr=False, compare=False)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of token ids."""
        return id_type(self.vocab_size)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, without special tokens; an array of `dtype` each, empty for an empty text."""
        self._backend.encode_special_tokens = True  # "[MASK]" in a text is text; not kept by pickle
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, self.dtype) for encoding in encodings]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of `ids`, lower-cased and spaced as the tokenizer saw it; special tokens are kept."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)


def id_type(vocab_size: int) -> np.dtype:
    """The smaller of uint16 and uint32 that holds every id of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 65536 else np.uint32)


def load(path: Path) -> Tokenizer:
    """Loads a tokenizer.json.

    Raises:
        InputError: the file is missing, damaged or over LARGEST_JSON bytes, lacks one of the five special tokens, or
            has ids or tokens of a size that no vocabulary needs.
    """
    path = Path(path)
    content = read_bytes(path, LARGEST_JSON)
    try:
        backend = tokenizers.Tokenizer.from_str(content.decode())
    except BaseException as error:  # tokenizers raises plain Exception; a panic of its Rust code is not even one
        if isinstance(error, KeyboardInterrupt):
            raise
        raise InputError(f"{path}: not a usable tokenizer.json ({error!s:.200}); train or copy it again") from error
    backend.no_padding()
    backend.no_truncation()
    vocabulary = backend.get_vocab(with_added_tokens=True)
    missing = [token for token in SPECIAL_TOKENS.values() if token not in vocabulary]
    if missing:
        raise InputError(f"{path}: the vocabulary lacks {' '.join(missing)}; use a BERT-style tokenizer.json")
    ids = {name: vocabulary[token] for name, token in SPECIAL_TOKENS.items()}
    vocab_size = max(vocabulary.values()) + 1
    if vocab_size > 2 * len(vocabulary):
        raise InputError(f"{path}: ids up to {vocab_size - 1:,} for {len(vocabulary):,} tokens; number them from 0 on")
    if max(map(len, vocabulary)) > LONGEST_TOKEN:
        raise InputError(f"{path}: a token is longer than {LONGEST_TOKEN:,} characters; train or copy it again")
    return Tokenizer(path, hashlib.sha256(content).hexdigest(), vocab_size, **ids, _backend=backend)


def train(texts: Iterable[str], vocab_size: int, path: Path) -> Tokenizer:
    """Trains a WordPiece vocabulary of at most `vocab_size` tokens and writes it to `path`.

    The same texts give the same bytes.

    Raises:
        InputError: no text, a vocabulary too small for the alphabet, or `path` cannot be written.
    """
    path = Path(path)
    special = list(SPECIAL_TOKENS.values())
    words = _count_words(texts)
    alphabet = _alphabet(words)
    if not alphabet:
        raise InputError(f"{path}: no text to train a tokenizer on")
    smallest = len(special) + 2 * len(alphabet)  # every character may begin a word or continue one
    if vocab_size < smallest:
        raise InputError(f"{path}: a vocabulary of {vocab_size} is too small, this text needs {smallest}")
    pieces = special + wordpiece.learn(words, alphabet, vocab_size - len(special))
    backend = _pipeline({piece: index for index, piece in enumerate(pieces)})
    backend.add_special_tokens(special)
    with whole_file(path) as file:
        file.write(backend.to_str(pretty=True).encode())
    return load(path)


def _count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word of the normalised texts stands there; punctuation marks are words."""
    pipeline = _pipeline({"[UNK]": 0})
    spaced: Counter[str] = Counter()
    for text in texts:
        spaced.update(pipeline.normalizer.normalize_str(text).split())
    words: Counter[str] = Counter()
    for chunk, count in spaced.items():
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(chunk):
            words[word] += count
    return words


def _alphabet(words: Counter[str]) -> list[str]:
    """The commonest characters of the words, in code point order."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    commonest = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(commonest[:MAX_ALPHABET])


def _pipeline(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.decoder = decoders.WordPiece()
    return backend
