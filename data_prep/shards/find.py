"""Show documents of a folder of shards as plain text: the first ones, or those with an id or a pattern."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

SEGMENTS, TOKENS = 200, 500  # how many segments of a document, and tokens of a segment, are printed at most


def find(
    directory: Path, limit: int, *, name: str | None = None, pattern: re.Pattern[str] | None = None
) -> Iterator[str]:
    """Yield the first `limit` documents that match, in words, each with its shard.

    They have the id `name` (as do the parts `ID#2`, ... that a long document was cut into), or a segment in which the
    `pattern` is found, as `Tokenizer.text_of` decodes it.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")

    def matches(document: TokenDocument) -> bool:
        if name is not None:
            return document.id == name or document.id.startswith(f"{name}#")
        return pattern is None or any(pattern.search(tok.text_of(segment)) for segment in document.segments)

    lines = (
        f"{shard.entry.name}: {_shown(tok, document)}"
        for shard in (Shard.open(manifest, index) for index in track(range(len(manifest.shards)), "search", "shards"))
        for document in shard.documents()
        if matches(document)
    )
    first_line = next(lines, None)
    if first_line is None:
        raise InputError(f"{directory}: no document of its {manifest.total('documents'):,} matches")
    yield first_line
    yield from islice(lines, limit - 1)


def _shown(tok: Tokenizer, document: TokenDocument) -> str:
    """Return a line about a document and one for each of its segments; three dots mark what is left out."""
    segments = document.segments
    lines = [f"{printable(document.id[:200])} ({len(segments)} segments, {sum(map(len, segments))} tokens)"]
    for segment in segments[:SEGMENTS]:
        lines.append(f"  {printable(tok.text_of(segment[:TOKENS]) + ' ...' * (len(segment) > TOKENS))}")
    return "\n".join(lines + ["  ..."] * (len(segments) > SEGMENTS))
