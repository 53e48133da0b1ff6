"""A tokenizer in one Hugging Face `tokenizer.json`: any kind is loaded, two kinds are trained.

wordpiece   lower-cased, like BERT's
bpe         byte-level, like RoBERTa's and GPT-2's: keeps case and white space, has no unknown characters
"""

import hashlib
import json
import re
import string
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes, write_bytes
from deepsiam.data_prep.common.hub import TOKENIZER_FILES, local_model
from deepsiam.data_prep.common.words import STOP_WORDS
from deepsiam.data_prep.tokenizers import bounds, frame, special_tokens, wordpiece
from deepsiam.data_prep.tokenizers.alphabet import FEWEST, LONGEST_WORD, alphabet, learnable
from deepsiam.data_prep.tokenizers.other_formats import require_tokenizer
from deepsiam.data_prep.tokenizers.prompt import Prompt
from deepsiam.data_prep.tokenizers.special_tokens import ROBERTA_TOKENS, SPECIAL_TOKENS
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary

TOKENIZER_CONFIG, SPLIT = ("tokenizer_config.json", "split_special_tokens")  # of a published tokenizer, and a key of it
LONGEST_TOKEN = 1000  # characters
BATCH = 512  # items that `encode_batches` encodes at once
PROBES = ("a", "A", "1", ".", "漢", "\na")  # texts that a prompt is read before

# what byte-level BPE takes as one word, `?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+`, or several of these
_TOO_MANY = f"{{{LONGEST_WORD + 1},}}"
_LONG_WORD = re.compile(rf"[^\W_]{_TOO_MANY}|(?:[^\w\s]|_){_TOO_MANY}|\s{_TOO_MANY}")

Item = TypeVar("Item")


@dataclass(frozen=True)
class Tokenizer(Vocabulary):
    """A loaded tokenizer.json."""

    path: Path
    fingerprint: str  # the SHA-256 (hex) of the file's bytes
    special_tokens: Mapping[str, str] = field(repr=False, compare=False)  # by role, such as ROBERTA_TOKENS
    split_special_tokens: bool  # whether "[SEP]" that is spelled out in a text is text; otherwise it is the token
    _backend: tokenizers.Tokenizer = field(repr=False, compare=False)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of token ids."""
        return id_type(self.vocab_size)

    def vocabulary(self) -> dict[str, int]:
        """Return the id of every token, including the special tokens."""
        return self._backend.get_vocab(with_added_tokens=True)

    @cached_property
    def frames(self) -> frame.Frames:
        """What its post-processor puts around a text and a pair; without one, [CLS] and [SEP], if it has all roles."""
        frames = frame.read(self._backend)
        bert_like = self.special_tokens.keys() == SPECIAL_TOKENS.keys()
        return super().frames if bert_like and not any(frames.text) else frames

    @cached_property
    def punctuation(self) -> tuple[int, ...]:
        """The ids of the tokens that consist of punctuation only, with or without a space."""
        return tuple(i for i, text in enumerate(self.texts) if text and all(map(_is_punctuation, text)))

    @cached_property
    def stop_words(self) -> tuple[int, ...]:
        """The ids of the tokens that are English stop words or punctuation, with or without a space, in any case."""
        stop_words = [i for i, text in enumerate(self.texts) if text.lower() in STOP_WORDS]
        return tuple(sorted({*stop_words, *self.punctuation}))

    @cached_property
    def words(self) -> tuple[int, ...]:
        """The ids of the tokens that are whole words or numbers: letters and digits, and no rest of a longer word."""
        letter = self._ids("a")
        behind = self._backend.decode_batch([[*letter, i] for i in range(self.vocab_size)], skip_special_tokens=False)
        rests = [text[len(self.decode(letter)) :] for text in behind]
        return tuple(i for i, text in enumerate(rests) if text[:1].isspace() and text.strip().isalnum())

    @cached_property
    def texts(self) -> list[str]:
        """The text of each token, without space around it."""
        return [text.strip() for text in self._decoded]

    @cached_property
    def _decoded(self) -> list[str]:
        """The text of each token; the rest of a word begins with ## in WordPiece."""
        return self._backend.decode_batch([[i] for i in range(self.vocab_size)], skip_special_tokens=False)

    def splitting(self, split_special_tokens: bool) -> "Tokenizer":
        """Return this tokenizer with another value of `split_special_tokens`."""
        return replace(self, split_special_tokens=split_special_tokens)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text without a frame: arrays of `dtype`, empty for an empty text."""
        self._backend.encode_special_tokens = self.split_special_tokens  # pickle loses this setting
        with bounds.panics_as_input_errors(self.path):
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, self.dtype) for encoding in encodings]

    @cached_property
    def joint(self) -> str:
        """What a text needs in front to have the ids that it has after another text and a blank: a blank, or nothing.

        A byte-level tokenizer reads a blank with the word after it; others begin every text as if after a blank.
        """
        return "" if self._ids("a a") == self._ids("a") * 2 else " "

    def prompt(self, text: str) -> Prompt:
        """Return what puts a prompt before texts, as it is read before some short ones."""
        stems = [self._stem(text, probe) for probe in PROBES]
        (stem, _), leaves_blanks_out = stems[0], all(self._ids(probe) == self._ids(f" {probe}") for probe in PROBES)
        apart = text[-1:].isspace() and leaves_blanks_out and {*stems} == {(stem, True)}
        added_ids = self._backend.get_added_tokens_decoder().keys() - {self.unk}
        return Prompt(text, tuple(self._ids(text)), stem, apart, added_ids, self._ids, self.decode)

    def _stem(self, prompt: str, text: str) -> tuple[frame.Ids, bool]:
        """Return the ids of a prompt before a text that keeps its own, or else alone; and whether a word ends there."""
        text_ids, encoding = self._ids(text), self._backend.encode(prompt + text, add_special_tokens=False)
        at, words = len(encoding.ids) - len(text_ids), encoding.word_ids
        if at < 0 or encoding.ids[at:] != text_ids:
            return tuple(self._ids(prompt)), False
        return tuple(encoding.ids[:at]), not at or words[at - 1] != words[at]

    def _ids(self, text: str) -> list[int]:
        """Return the ids of one text, as `encode` does, in this thread: loader workers are forked after the first."""
        self._backend.encode_special_tokens = self.split_special_tokens
        ids: list[int] = self._encoding(text).ids
        return ids

    def filled(self, parts: Sequence[str]) -> np.ndarray:
        """Return the ids, int64, of a filled template read as a whole: literals at even numbers, texts at odd ones.

        Special tokens of the literals are tokens; those that a text spells out are text.
        """
        template, ends = "".join(parts), [*accumulate(map(len, parts))]
        self._backend.encode_special_tokens = False
        encoding = self._encoding(template)
        ids = list[int]()
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if (text := self._special_texts.get(token)) is not None:
                place = template.find(text, start, end)  # it may take the blanks around it, and a word may be unknown
                if (place >= 0 or token != self.unk) and bisect(ends, max(start, place)) % 2:
                    ids += self.splitting(True)._ids(text)
                    continue
            ids.append(token)
        return np.array(ids, np.int64)

    @cached_property
    def _special_texts(self) -> dict[int, str]:
        tokens = self._backend.get_added_tokens_decoder().items()
        return {token: entry.content for token, entry in tokens if entry.special}

    def clipped(self, text: str, limit: int, side: str) -> tuple[str, int]:
        """Return the first part of a text, or for `side` "end" the last, of `limit` tokens at most, and its number.

        It ends between two characters; special tokens that it spells out are text.
        """
        self._backend.encode_special_tokens = True
        encoding = self._encoding(text)
        tokens = len(encoding.ids)
        if tokens <= limit:
            return text, tokens
        if side == "end":
            return text[encoding.offsets[tokens - limit - 1][1] :].strip(), limit
        return text[: encoding.offsets[limit][0]].strip(), limit

    def _encoding(self, text: str) -> tokenizers.Encoding:
        with bounds.panics_as_input_errors(self.path):
            return self._backend.encode(text, add_special_tokens=False)

    def encode_batches(
        self, items: Iterable[tuple[Item, Sequence[str]]], *, sentences: bool = False
    ) -> Iterator[tuple[Item, list[np.ndarray]]]:
        """Yield each item with the ids of its texts, in order, as `encode` returns them; BATCH items are in memory.

        `sentences`: the texts of an item are sentences of one text, and together have the ids of that text, in which
        blanks are between them.
        """
        items = iter(items)
        blank = self.joint if sentences else ""
        while batch := list(islice(items, BATCH)):
            encoded = iter(self.encode([blank * (i > 0) + text for _, texts in batch for i, text in enumerate(texts)]))
            for item, texts in batch:
                yield item, list(islice(encoded, len(texts)))

    def extends(self, base: "Tokenizer") -> bool:
        """Return whether a tokenizer gives the other's tokens the same ids, and adds at most special or marker tokens.

        Texts in the other's ids then mean the same here. How it normalises texts may differ.
        """
        pieces, base_pieces = self.vocabulary(), base.vocabulary()
        added_texts = {token.content for token in self._backend.get_added_tokens_decoder().values()}
        return base_pieces.items() <= pieces.items() and pieces.keys() - base_pieces.keys() <= added_texts

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of `ids` with special tokens: the original (bpe), or lower-cased and respaced (wordpiece)."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def text_of(self, segment: Sequence[int] | np.ndarray) -> str:
        """Return the text of a document's segment, without the blank in front that a byte-level tokenizer keeps."""
        return self.decode(segment).removeprefix(" ")


def _is_punctuation(character: str) -> bool:
    """Apply BERT's definition: ASCII's symbols, including $ and +, and everything that Unicode calls punctuation."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def id_type(vocab_size: int) -> np.dtype:
    """Return the smaller of uint16 and uint32 that can represent every id of a vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 65536 else np.uint32)


def load(path: Path, reader: Callable[[Path], bytes] = read_bytes) -> Tokenizer:
    """Load a tokenizer.json; `path` is the file, its folder, or a model on the hub, and `reader` reads its files.

    Special tokens that a text spells out are text, except in the folder of an encoder, unless its tokenizer_config.json
    says so: the Hugging Face libraries find them in texts.

    Raises:
        InputError: the file is missing, damaged or over LARGEST_JSON bytes, lacks a token for unknown words or padding,
            puts too many tokens around a text, has ids far beyond the number of tokens, or a token longer than
            LONGEST_TOKEN, or what it makes of a text has no bound (bounds.py).
    """
    path = local_model(path, TOKENIZER_FILES)
    if path.is_dir():  # sentence-transformers' old folders have it beside their encoder, in 0_Transformer
        files = [path / "tokenizer.json", *sorted(path.glob("0_*/tokenizer.json"))]
        path = next((file for file in files if file.exists()), files[0])
    require_tokenizer(path)
    content = reader(path)
    try:
        record = json.loads(content)
        bounds.require_bounded(record)
        backend = tokenizers.Tokenizer.from_str(content.decode())
    except BaseException as error:  # tokenizers raises plain Exception, and a panic of its Rust code is a BaseException
        if isinstance(error, KeyboardInterrupt):
            raise
        raise InputError(f"{path}: not a usable tokenizer.json ({error!s:.200}); train or copy it again") from error
    vocabulary = backend.get_vocab(with_added_tokens=True)
    backend.no_padding()
    backend.no_truncation()
    try:
        special = special_tokens.find(backend, record, vocabulary)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    vocab_size = max(vocabulary.values()) + 1
    if vocab_size > 2 * len(vocabulary):
        raise InputError(f"{path}: ids up to {vocab_size - 1:,} for {len(vocabulary):,} tokens; number them from 0 on")
    if max(map(len, vocabulary)) > LONGEST_TOKEN:
        raise InputError(f"{path}: a token is longer than {LONGEST_TOKEN:,} characters; train or copy it again")
    special_flags = {token.content: token.special for token in backend.get_added_tokens_decoder().values()}
    # else tokens that the file marks as ordinary match texts; MPNet's <unk> is a word, its unknown token is [UNK].
    # One that is marked as special stays as it is: RoBERTa's <mask> takes the blank before it
    ordinary = [token for token in special.values() if not special_flags.get(token)]
    backend.add_special_tokens([token for token in ordinary if token != special["unk"] or token in special_flags])
    if isinstance(backend.model, models.BPE):
        backend.model.dropout = None  # with dropout, a text has different ids each time
    ids = {role: vocabulary.get(special.get(role, "")) for role in SPECIAL_TOKENS if role != "pad"}
    split = _split_special_tokens(path.with_name(TOKENIZER_CONFIG), reader)
    try:
        return Tokenizer(
            vocab_size,
            pad=vocabulary[special["pad"]],
            **ids,
            path=path,
            fingerprint=hashlib.sha256(content).hexdigest(),
            special_tokens=special,
            split_special_tokens=split,
            _backend=backend,
        )
    except ValueError as error:
        raise InputError(f"{path}: {error}; train or copy it again") from None


def _split_special_tokens(path: Path, reader: Callable[[Path], bytes]) -> bool:
    if not path.is_file():
        return not path.with_name("config.json").is_file()  # of an encoder, whose tokenizer has transformers' defaults
    try:
        split = json.loads(reader(path)).get(SPLIT, False)
    except (ValueError, RecursionError, AttributeError):
        raise InputError(f"{path}: not a JSON object; copy the folder again") from None
    if not isinstance(split, bool):
        raise InputError(f"{path}: {SPLIT} is {split!r:.80}, not true or false")
    return split


def train(texts: Iterable[str], vocab_size: int, path: Path, kind: str = "wordpiece") -> Tokenizer:
    """Train a vocabulary of at most `vocab_size` tokens, including the special tokens, and write it to `path`.

    The same texts give the same bytes.
    """
    path = Path(path)
    if kind not in KINDS:
        raise InputError(f"{path}: cannot train a tokenizer of kind {kind!r}; choose one of {', '.join(KINDS)}")
    backend = KINDS[kind](texts, vocab_size, path)
    write_bytes(path, backend.to_str(pretty=True).encode())
    return load(path)


def _train_bpe(texts: Iterable[str], vocab_size: int, path: Path) -> tokenizers.Tokenizer:
    """Train with the library, which is deterministic on bytes: it breaks ties by their ids, which are sorted."""
    special = [AddedToken(token, special=True, lstrip=name == "mask") for name, token in ROBERTA_TOKENS.items()]
    all_bytes = sorted(pre_tokenizers.ByteLevel.alphabet())
    _check_size(vocab_size, len(special) + len(all_bytes))
    texts = filter(str.strip, map(without_long_words, texts))
    first_text = next(texts, None)
    if first_text is None:
        raise InputError(f"{path}: no text to train a tokenizer on")
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=special, initial_alphabet=all_bytes, show_progress=False
    )
    backend.train_from_iterator(chain([first_text], texts), trainer)
    return backend


def without_long_words(text: str) -> str:
    """Return a text with a blank for each run of letters, symbols or space that byte-level BPE would take as a word."""
    return _LONG_WORD.sub(" ", text)


def _train_wordpiece(texts: Iterable[str], vocab_size: int, path: Path) -> tokenizers.Tokenizer:
    """Train with wordpiece.py: the library's trainer is not deterministic."""
    special = list(SPECIAL_TOKENS.values())
    words = learnable(_count_words(texts))
    characters = alphabet(words, vocab_size - len(special))
    if not characters:
        raise InputError(f"{path}: no text to train a tokenizer on")
    # any character may begin or continue a word
    _check_size(vocab_size, len(special) + 2 * min(len(characters), FEWEST))
    pieces = special + wordpiece.learn(words, characters, vocab_size - len(special))
    backend = _pipeline({piece: index for index, piece in enumerate(pieces)})
    backend.add_special_tokens(special)
    return backend


KINDS = {"wordpiece": _train_wordpiece, "bpe": _train_bpe}


def _check_size(vocab_size: int, smallest: int) -> None:
    if vocab_size < smallest:
        raise InputError(f"--vocab-size {vocab_size}: is too small, this text needs {smallest}: raise it")


def _count_words(texts: Iterable[str]) -> Counter[str]:
    """Return the number of occurrences of each word in the normalised texts; punctuation marks are words."""
    pipeline = _pipeline({"[UNK]": 0})
    spaced: Counter[str] = Counter()
    for text in texts:
        spaced.update(pipeline.normalizer.normalize_str(text).split())
    words: Counter[str] = Counter()
    for chunk, count in spaced.items():
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(chunk):
            words[word] += count
    return words


def _pipeline(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.decoder = decoders.WordPiece()
    return backend
