"""Export documents as JSON lines, so that anyone can read and compare them."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from data_prep.common.files import whole_file
from data_prep.shards.manifest import Manifest
from data_prep.shards.reader import Shard
from data_prep.tokenizers import tokenizer


def export(lines: Iterable[str], out: Path | None) -> None:
    """Write lines, such as those of `json_lines`, to the file `out` or to stdout; raise InputError if that fails."""
    if out is None:
        for line in lines:
            sys.stdout.write(line)
        return
    with whole_file(out) as file:
        for line in lines:
            file.write(line.encode())


def json_lines(directory: Path) -> Iterator[str]:
    """Yield `{"id": ..., "group": ..., "text": [segment, ...]}` (in ASCII) for every document of a folder of shards.

    `text` is what the tokenizer decodes: a lower-casing tokenizer has lost the case. The blank before a sentence, which
    a byte-level one keeps, is not a part of it.

    Raises:
        InputError: the folder has no shards, or one is damaged.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    for index in range(len(manifest.shards)):
        for document in Shard.open(manifest, index).documents():
            text = [tok.decode(segment).removeprefix(" ") for segment in document.segments]
            yield json.dumps({"id": document.id, "group": document.group, "text": text}) + "\n"
