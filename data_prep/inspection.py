"""What a folder of shards holds, as plain text to read."""

from collections import Counter
from pathlib import Path

from data_prep import tokenizer
from data_prep.errors import InputError, printable
from data_prep.shards import Manifest, Shard, TokenDocument
from data_prep.tokenizer import Tokenizer

WIDTH = 40  # characters of the longest bar
SEGMENTS, TOKENS = 200, 500  # the most segments of a document, and tokens of a segment, that are shown


def describe(directory: Path, shard: int, chunk: int, documents: int) -> str:
    """The totals, the first documents of one chunk in words, and the lengths of all documents of the shard.

    Raises:
        InputError: there is no such shard or chunk, or it cannot be read.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    if not 0 <= shard < len(manifest.shards):
        raise InputError(f"{directory}: no shard {shard}; there are 0 to {len(manifest.shards) - 1}")
    opened = Shard.open(manifest, shard)
    if not 0 <= chunk < len(opened):
        raise InputError(f"{opened.path}: no chunk {chunk}; there are 0 to {len(opened) - 1}")
    totals = ", ".join(f"{manifest.total(name):,} {name}" for name in ("documents", "segments", "tokens", "bytes"))
    lines = [f"{directory}: {len(manifest.shards):,} shards, {totals}"]
    lines.append(f"vocabulary of {tok.vocab_size:,}, tokenizer {tok.fingerprint[:12]}")
    lines.append(f"\n{opened.entry.name}, chunk {chunk} of {len(opened)}")
    names = opened.provenance(chunk)["documents"]
    for name, document in list(zip(names, opened.read(chunk), strict=False))[:documents]:
        size = sum(map(len, document))
        lines.append(f"\n{printable(name[:200])} ({len(document)} segments, {size} tokens)")
        lines += _words(tok, document)
    lines.append(f"\ntokens per document in {opened.entry.name}")
    return "\n".join(lines + _histogram(opened))


def _words(tok: Tokenizer, document: TokenDocument) -> list[str]:
    """A line for each segment; three dots where there is more."""
    shown = [tok.decode(segment[:TOKENS]) + " ..." * (len(segment) > TOKENS) for segment in document[:SEGMENTS]]
    return [f"  {printable(text)}" for text in shown] + ["  ..."] * (len(document) > SEGMENTS)


def _histogram(shard: Shard) -> list[str]:
    """A bar for each doubling of the length, from the shortest documents to the longest."""
    sizes = (sum(map(len, document)) for number in range(len(shard)) for document in shard.read(number))
    doublings = Counter(size.bit_length() for size in sizes)
    most = max(doublings.values(), default=0)
    return [
        f"  {1 << power >> 1:>7,} to {(1 << power) - 1:>7,}  {number:>7,}  {'#' * -(-WIDTH * number // most)}"
        for power, number in sorted(doublings.items())
    ]
