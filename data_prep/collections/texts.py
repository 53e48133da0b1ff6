"""The texts of a collection, its documents or its queries: ids, UTF-8 and tokens, memory-mapped.

text.npy, text_ends.npy         UTF-8, the parts of a text joined by a space
tokens.npy, token_ends.npy      token ids without special tokens
part_ends.npy, parts.npy        where each part ends in tokens; only if some text has several parts (turns, sentences)
ids.npy, id_ends.npy, id_hashes.npy, id_order.npy       see ids.py
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.flat_arrays import Rows
from deepsiam.data_prep.collections.ids import Ids, content_id, is_content_id, utf8_of
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer, id_type

SHOWN = 50  # characters of a text in a message


@dataclass(frozen=True)
class Texts:
    """Opened texts; text i is the i-th of its file."""

    ids: Ids
    utf8: Rows  # uint8
    token_rows: Rows  # uint16 or uint32
    part_rows: Rows | None  # int64: the ends of the parts of text i among its tokens
    vocab_size: int

    @classmethod
    def map(cls, folder: Path, vocab_size: int) -> "Texts":
        """Memory-map a folder of texts; raise InputError where its arrays do not belong together."""
        ids = Ids.map(folder)
        utf8 = Rows.map(folder / "text.npy", folder / "text_ends.npy", [np.uint8])
        tokens = Rows.map(folder / "tokens.npy", folder / "token_ends.npy", [id_type(vocab_size)])
        parts = None
        if (folder / "parts.npy").exists():
            parts = Rows.map(folder / "parts.npy", folder / "part_ends.npy", [np.int64])
        if any(len(rows) != len(ids) for rows in (utf8, tokens, *([parts] if parts else []))):
            raise InputError(f"{folder}: damaged (its arrays are of different texts); make the collection again")
        return cls(ids, utf8, tokens, parts, vocab_size)

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer) -> "Texts":
        """Hold texts in memory; the id of text i is its number."""
        tokens = Rows.of(tokenizer.encode(texts), tokenizer.dtype)
        utf8 = Rows.of([utf8_of(text) for text in texts], np.uint8)
        return cls(Ids.of([*map(str, range(len(texts)))]), utf8, tokens, None, tokenizer.vocab_size)

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.ids)

    def tokens(self, i: int) -> np.ndarray:
        """Return the token ids of text i, empty for an empty text; raise InputError if one is beyond the vocabulary."""
        tokens = self.token_rows[i]
        if len(tokens) and tokens.max() >= self.vocab_size:
            raise InputError(
                f"{self.token_rows.flat_file}: text {i} has a token beyond the vocabulary: the file is damaged; make "
                "the collection again"
            )
        return tokens

    def parts(self, i: int) -> list[np.ndarray]:
        """Return the token ids of each part of text i."""
        if self.part_rows is None:
            return [self.tokens(i)]
        return np.split(self.tokens(i), self.part_rows[i][:-1])

    def text(self, i: int) -> str:
        """Return text i, its parts joined by a space."""
        return self.utf8[i].tobytes().decode()

    def called(self, i: int) -> str:
        """Return what a message calls text i: its id or, if that is a hash of the text, the text's beginning.

        Where texts have parts, a hash is known by its form.
        """
        name, text = self.ids[i], " ".join(self.text(i).split())
        has_no_id = name == content_id(self.text(i)) or (self.part_rows is not None and is_content_id(name))
        return repr(text[:SHOWN] + "…" * (len(text) > SHOWN)) if text and has_no_id else name

    def texts(self) -> Iterator[str]:
        """Yield every text in order."""
        return (self.text(i) for i in range(len(self)))


def checked_texts(texts: str | Iterable[str] | Mapping[str, str], name: str) -> list[str]:
    """Return the texts that a function is given, without the white space around them; one text is a list of one.

    Raises:
        InputError: one is not a string, or has half a character; the message names its place, as `texts[3]`.
    """
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, Iterable):
        raise InputError(f"{name}: {reprlib.repr(texts)} is neither a text nor a list of texts")
    checked = list[str]()
    for key, text in texts.items() if isinstance(texts, Mapping) else enumerate(texts):
        where = f"{name}[{key!r}]"
        if not isinstance(text, str):
            raise InputError(f"{where}: {reprlib.repr(text)} is not a string")
        require_utf8(text, where)
        checked.append(text.strip())
    return checked


def require_utf8(text: str, where: str) -> None:
    """Raise InputError for a text with bytes that Python could not decode, or half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: {reprlib.repr(text)} is not UTF-8; convert it, as iconv does") from None
