"""What a tokenizer puts around a text and around a pair of texts, read off its own post-processor."""

from itertools import islice
from typing import NamedTuple

import tokenizers

Ids = tuple[int, ...]
PROBES = 1_000  # tokens that are tried as texts


class Frames(NamedTuple):
    """The ids before and after a text; and before, between and after the two texts of a pair."""

    text: tuple[Ids, Ids]
    pair: tuple[Ids, Ids, Ids]


def read(backend: tokenizers.Tokenizer) -> Frames:
    """Read a tokenizer's frames; where the file has no frame of pairs, each text of a pair is ended as one alone.

    Raises:
        ValueError: it makes tokens of no text, or does not keep the order of two texts.
    """
    probe = _probe(backend)
    prefix, suffix = _around(backend.encode(probe))
    head, between, tail = _around(backend.encode(probe, probe))
    return Frames((prefix, suffix), (head, between, tail) if head or between or tail else (prefix, suffix, suffix))


def _probe(backend: tokenizers.Tokenizer) -> str:
    """Return a text of at least one token."""

    def has_ids(text: str) -> bool:
        return bool(backend.encode(text, add_special_tokens=False).ids)

    if has_ids("a"):  # nearly always; it saves a copy of the vocabulary
        return "a"
    for text in islice(backend.get_vocab(with_added_tokens=False), PROBES):
        if has_ids(text):
            return text
    raise ValueError("no token of its vocabulary is found in a text")


def _around(encoding: tokenizers.Encoding) -> tuple[Ids, ...]:
    """Return the ids around each text of an encoding: before the first, between, after the last."""
    parts: list[list[int]] = [[]]
    for token, text in zip(encoding.ids, encoding.sequence_ids, strict=True):
        if text is None:
            parts[-1].append(token)
        elif text == len(parts) - 1:
            parts.append([])
    if len(parts) != encoding.n_sequences + 1:
        raise ValueError("its post_processor does not keep the order of two texts")
    return tuple(map(tuple, parts))
