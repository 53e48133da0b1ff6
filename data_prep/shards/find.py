"""Find documents of a folder of shards by their id or a pattern, and show them as plain text."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.shards.describe import shown
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

Matches = Callable[[Tokenizer, TokenDocument], bool]


def by_id(wanted: str) -> Matches:
    """Match the document of an id, and the parts `ID#2`, ... that a long one was cut into."""
    return lambda _, document: document.id == wanted or document.id.startswith(f"{wanted}#")


def by_pattern(pattern: re.Pattern[str]) -> Matches:
    """Match documents with a segment that the pattern is found in, as `Tokenizer.text_of` decodes it."""
    return lambda tok, document: any(pattern.search(tok.text_of(segment)) for segment in document.segments)


def find(directory: Path, matches: Matches, most: int) -> Iterator[str]:
    """Yield the first `most` documents that match, in words, each with its shard.

    Raises:
        InputError: none matches, or a shard cannot be read.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    found = (
        f"{shard.entry.name}: {shown(tok, document)}"
        for shard in (Shard.open(manifest, index) for index in track(range(len(manifest.shards)), "search", "shards"))
        for document in shard.documents()
        if matches(tok, document)
    )
    first = next(found, None)
    if first is None:
        raise InputError(f"{directory}: no document of its {manifest.total('documents'):,} matches")
    yield first
    yield from islice(found, most - 1)
