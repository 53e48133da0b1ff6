"""The cleaned text of a data set, before tokens: OUT/text, compressed JSON lines that other tools read too.

    OUT/text/text-000000.jsonl.gz ...   a document a line: id, source, text (a segment a line), metadata
    OUT/text/texts.json                 the files with their sizes and hashes, and how they were made

Documents are in the order of the hash of their text, as in shards; each file covers one range of hashes. So each file
is a task for the readers of the next step, and a random sample.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import PARTIAL, make_directory, os_errors_as_input_errors, sync, write_bytes
from deepsiam.data_prep.prepare import output, tally, writing
from deepsiam.data_prep.prepare.rejected import Rejected
from deepsiam.data_prep.prepare.writing import Selection, ShardPlan
from deepsiam.data_prep.sources.cleaned import FOLDER, FORMAT, NAME, load, problems, require_whole
from deepsiam.data_prep.sources.document import Document


def is_finished(out: Path) -> bool:
    """Return whether OUT has cleaned text."""
    return (out / FOLDER / NAME).exists()


def check_free(out: Path) -> None:
    """Raise InputError where OUT/text exists and was not made by a preparation: it would be replaced."""
    if (out / FOLDER).exists() and not is_finished(out):
        raise InputError(f"{out / FOLDER}: exists, and no preparation made it; choose another --out, or move it away")


def line(document: Document, source: str) -> str:
    """Return a document as a line of JSON; `documents` of the source `cleaned` reads it back unchanged."""
    metadata = {"group": document.group, "headings": document.headings, "context": document.context}
    if document.title:
        metadata["title"] = document.title
    record = {"id": document.id, "source": source, "text": "\n".join(document.segments), "metadata": metadata}
    return json.dumps(record, ensure_ascii=False) + "\n"


def writer(selection: Selection, source: str, folder: Path) -> Callable[[ShardPlan], ShardPlan]:
    """Return a worker's task: write the file of a range in FOLDER/text, and then its entry in FOLDER/done."""

    def write(shard: ShardPlan) -> ShardPlan:
        dropped: Counter[str] = Counter()
        rejected = Rejected(selection.rejected)
        content = io.BytesIO()
        counts: Counter[str] = Counter()
        with gzip.GzipFile("", "wb", 6, content, mtime=0) as file:
            for _, document in writing.kept(selection, *shard.range, False, dropped, rejected):
                file.write(line(document, source).encode())
                counts.update(documents=1, segments=len(document.segments), characters=sum(map(len, document.segments)))
        name = f"text-{shard.number:06d}.jsonl.gz"
        entry = None
        if counts["documents"]:
            make_directory(folder / FOLDER)
            write_bytes(folder / FOLDER / name, content.getvalue())
            digest = hashlib.sha256(content.getvalue()).hexdigest()
            entry = {"name": name, **counts, "bytes": len(content.getvalue()), "sha256": digest}
        rejected.write(writing.finished(folder, shard))
        write_bytes(writing.finished(folder, shard), json.dumps({"entry": entry, "dropped": dropped}).encode())
        return shard

    return write


def plan(documents: int, size: int, shards_wanted: int | None) -> list[ShardPlan]:
    """Return the ranges to write for a number of documents and their bytes of text."""
    return [replace(shard, split=FOLDER) for shard in output.plan(documents, size, 0.0, shards_wanted)]


def finish(out: Path, folder: Path, shards: Sequence[ShardPlan], source: Mapping[str, Any]) -> None:
    """Write texts.json, and move all to OUT/text; raise InputError where no document is left, with the reasons."""
    files: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    for shard in shards:
        record = json.loads(writing.finished(folder, shard).read_bytes())
        dropped.update(record["dropped"])
        files += [record["entry"]] if record["entry"] else []
    stages = [*source["stages"], *output.last_stages(source, dropped)]
    if not files and source["part"]["of"] == 1:
        raise output.nothing_left(out, tally.dropped(stages), 0.0)
    make_directory(folder / FOLDER)
    about = {"format": FORMAT, "source": {**source, "stages": stages}, "files": files}
    write_bytes(folder / FOLDER / NAME, (json.dumps(about, indent=1) + "\n").encode())
    with os_errors_as_input_errors(out, "write"):
        os.replace(folder / FOLDER, out / FOLDER)
        sync(out)
        shutil.rmtree(out / PARTIAL)


def source_of(out: Path) -> dict[str, Any]:
    """Return how finished text was made, as texts.json records it."""
    return load(out / FOLDER).source.model_dump(by_alias=True)


def check(out: Path) -> None:
    """Raise InputError where a file differs from texts.json; remove what a killed run left."""
    for problem in problems(out / FOLDER):
        raise InputError(problem)
    if (out / PARTIAL / output.OF_TEXT).exists():  # else the second step's, or there is none
        output.clear(out)


def lines(folder: Path) -> Iterator[str]:
    """Yield the lines of all files, in order; raise InputError where one is damaged."""
    for file in load(folder).files:
        path = folder / file.name
        require_whole(path, file)
        with os_errors_as_input_errors(path, "read"), gzip.open(path, "rt", encoding="utf-8", newline="\n") as text:
            try:
                yield from text
            except (EOFError, UnicodeDecodeError, zlib.error) as error:
                raise InputError(f"{path}: is damaged ({error}); prepare or copy it again") from None


def summary(out: Path) -> str:
    """Describe finished text in a few lines."""
    texts = load(out / FOLDER)
    documents, segments, size = (
        sum(getattr(file, name) for file in texts.files) for name in ("documents", "segments", "bytes")
    )
    headline = f"{out / FOLDER}: {len(texts.files):,} files of cleaned text, {size / 1e6:,.1f} MB"
    stages = [stage.model_dump(by_alias=True) for stage in texts.source.stages]
    return "\n".join([headline, f"  {documents:,} documents, {segments:,} segments", *output.table(stages)])
