"""Describe one shard as plain text: its first documents in words, and the lengths of all documents."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

WIDTH = 40  # characters of the longest bar
SEGMENTS, TOKENS = 200, 500  # how many segments of a document, and tokens of a segment, are printed at most


def describe(directory: Path, shard: int, chunk: int, documents: int) -> str:
    """Return the totals, the first documents of one chunk in words, and a histogram of the shard's document lengths.

    Raises:
        InputError: the shard or chunk does not exist or cannot be read.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    if not 0 <= shard < len(manifest.shards):
        raise InputError(f"{directory}: no shard {shard}; name one of 0 to {len(manifest.shards) - 1}")
    opened = Shard.open(manifest, shard)
    if not 0 <= chunk < len(opened):
        raise InputError(f"{opened.path}: no chunk {chunk}; name one of 0 to {len(opened) - 1}")
    totals = ", ".join(f"{manifest.total(name):,} {name}" for name in ("documents", "segments", "tokens", "bytes"))
    lines = [f"{directory}: {len(manifest.shards):,} shards, {totals}"]
    lines.append(f"vocabulary of {tok.vocab_size:,}, tokenizer {tok.fingerprint[:12]}")
    lines.append(f"\n{opened.entry.name}, chunk {chunk} of {len(opened)}")
    for document in opened.read(chunk)[:documents]:
        lines.append(f"\n{shown(tok, document)}")
    lines.append(f"\ntokens per document in {opened.entry.name}")
    return "\n".join(lines + _histogram(opened))


def shown(tok: Tokenizer, document: TokenDocument) -> str:
    """Return a document in words: its id and size, then a line for each segment."""
    size = sum(map(len, document.segments))
    first = f"{printable(document.id[:200])} ({len(document.segments)} segments, {size} tokens)"
    return "\n".join([first, *_words(tok, document.segments)])


def _words(tok: Tokenizer, segments: Sequence[np.ndarray]) -> list[str]:
    """Return a line for each segment; three dots mark what is left out."""
    texts = [tok.text_of(segment[:TOKENS]) + " ..." * (len(segment) > TOKENS) for segment in segments[:SEGMENTS]]
    return [f"  {printable(text)}" for text in texts] + ["  ..."] * (len(segments) > SEGMENTS)


def _histogram(shard: Shard) -> list[str]:
    """Return a bar for each doubling of the length, from the shortest documents to the longest."""
    doublings = Counter(sum(map(len, document.segments)).bit_length() for document in shard.documents())
    most = max(doublings.values(), default=0)
    return [
        f"  {1 << power >> 1:>7,} to {(1 << power) - 1:>7,}  {number:>7,}  {'#' * -(-WIDTH * number // most)}"
        for power, number in sorted(doublings.items())
    ]
