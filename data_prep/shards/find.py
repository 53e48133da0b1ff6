"""Show documents of a folder of shards as plain text: the first ones, or those with an id or a pattern."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

SEGMENTS, TOKENS = 200, 500  # how many segments of a document, and tokens of a segment, are printed at most
Matches = Callable[[Tokenizer, TokenDocument], bool]


def any_document(_: Tokenizer, __: TokenDocument) -> bool:
    """Match every document."""
    return True


def by_id(wanted: str) -> Matches:
    """Match the document of an id, and the parts `ID#2`, ... that a long one was cut into."""
    return lambda _, document: document.id == wanted or document.id.startswith(f"{wanted}#")


def by_pattern(pattern: re.Pattern[str]) -> Matches:
    """Match documents with a segment that the pattern is found in, as `Tokenizer.text_of` decodes it."""
    return lambda tok, document: any(pattern.search(tok.text_of(segment)) for segment in document.segments)


def find(directory: Path, matches: Matches, most: int) -> Iterator[str]:
    """Yield the first `most` documents that match, in words, each with its shard."""
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    found = (
        f"{shard.entry.name}: {_shown(tok, document)}"
        for shard in (Shard.open(manifest, index) for index in track(range(len(manifest.shards)), "search", "shards"))
        for document in shard.documents()
        if matches(tok, document)
    )
    first = next(found, None)
    if first is None:
        raise InputError(f"{directory}: no document of its {manifest.total('documents'):,} matches")
    yield first
    yield from islice(found, most - 1)


def _shown(tok: Tokenizer, document: TokenDocument) -> str:
    size = sum(map(len, document.segments))
    first = f"{printable(document.id[:200])} ({len(document.segments)} segments, {size} tokens)"
    return "\n".join([first, *_words(tok, document.segments)])


def _words(tok: Tokenizer, segments: Sequence[np.ndarray]) -> list[str]:
    """Return a line for each segment; three dots mark what is left out."""
    texts = [tok.text_of(segment[:TOKENS]) + " ..." * (len(segment) > TOKENS) for segment in segments[:SEGMENTS]]
    return [f"  {printable(text)}" for text in texts] + ["  ..."] * (len(segments) > SEGMENTS)
