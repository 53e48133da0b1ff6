"""Export documents as JSON lines or as webdataset samples, so that anyone can read and compare them."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import whole_file, whole_folder
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.packing import plain_tar
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer

SIZE = 1 << 26  # bytes of the samples from which a tar is full


def export(lines: Iterable[str], out: Path | None) -> None:
    """Write lines, such as those of `json_lines`, to the file `out` or to stdout; raise InputError if that fails."""
    if out is None:
        for line in lines:
            sys.stdout.write(line)
        return
    with whole_file(out) as file:
        for line in lines:
            file.write(line.encode())


def export_samples(lines: Iterable[str], out: Path) -> None:
    """Write the documents of lines as samples, in tars `text-000000.tar`, ... of a new folder `out`.

    A sample has its document's segments as the lines of `.txt`, and the rest of the record (id, group, ...) as `.json`.
    """
    if out.exists():
        raise InputError(f"{out}: exists; remove it, or name another folder")
    records, number = map(json.loads, lines), count()
    with whole_folder(out) as folder:
        for shard, first_record in enumerate(records):
            with open(folder / f"text-{shard:06d}.tar", "wb") as file, plain_tar(file) as tar:
                size = 0
                for record in chain([first_record], records):
                    text = record.pop("text")
                    text = text if isinstance(text, str) else "\n".join(text)
                    size += tar.write({"__key__": f"{next(number):09d}", "txt": text, "json": record})
                    if size >= SIZE:
                        break


def json_lines(directory: Path) -> Iterator[str]:
    """Yield `{"id": ..., "group": ..., "text": [segment, ...]}` (in ASCII) for every document of a folder of shards.

    `text` is what the tokenizer decodes: a lower-casing tokenizer has lost the case. The blank before a sentence, which
    a byte-level one keeps, is not a part of it.
    """
    manifest = Manifest.load(directory)
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    for index in range(len(manifest.shards)):
        for document in Shard.open(manifest, index).documents():
            text = [tok.text_of(segment) for segment in document.segments]
            yield json.dumps({"id": document.id, "group": document.group, "text": text}) + "\n"
