"""Export the documents of shards as JSON lines, so that anyone can read and compare them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from data_prep.common.files import whole_file
from data_prep.shards.manifest import Manifest
from data_prep.shards.reader import Shard
from data_prep.tokenizers import tokenizer


def export(directory: Path, out: Path | None) -> None:
    """Write the lines of `json_lines` to the file `out`, or to stdout.

    Raises:
        InputError: as `json_lines` raises it, or `out` cannot be written.
    """
    if out is None:
        for line in json_lines(directory):
            sys.stdout.write(line)
        return
    with whole_file(out) as file:
        for line in json_lines(directory):
            file.write(line.encode())


def json_lines(directory: Path) -> Iterator[str]:
    """Yield `{"id": ..., "group": ..., "text": [segment, ...]}` (in ASCII) for every document of a folder of shards.

    `text` is what the tokenizer decodes: a lower-casing tokenizer has lost the case.

    Raises:
        InputError: the folder has no shards, or one is damaged.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    for index in range(len(manifest.shards)):
        for document in Shard.open(manifest, index).documents():
            text = [tok.decode(segment) for segment in document.segments]
            yield json.dumps({"id": document.id, "group": document.group, "text": text}) + "\n"
