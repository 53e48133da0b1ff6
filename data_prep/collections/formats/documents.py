"""Documents alone, without queries or labels: what a language model is asked about (docs/ask.md).

*.txt             a document each; its id is the path below the folder that was named, or the file's name
*.jsonl, *.json   {"_id": ..., "title": ..., "text": ...} a line; without an id (`id`, `docid`), it is FILE:LINE. A
                  title is put before the text, with a space; the text may also be named contents

Files, compressed or not, or folders of them, where other files are left alone. The encoding of a text
file that is not UTF-8 is guessed, as by `data_prep text`. A document may be empty: a remark counts those.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.format import (
    Format,
    Labelled,
    Text,
    Where,
    check_id,
    is_json,
    json_lines,
    titled_text,
)
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import BadRecordError
from deepsiam.data_prep.sources.plain_text import decoded, whole_bytes
from deepsiam.data_prep.sources.source import walk

NAMES = re.compile(r".*\.(txt|jsonl?)", re.IGNORECASE | re.DOTALL)
IDS = ("_id", "id", "docid")
TEXTS = ("text", "contents")


class Documents(Format):
    """A corpus that nobody has labelled: no queries, no splits."""

    summary = "documents without queries: .txt, one each, or .jsonl with text and perhaps title and _id; or folders"
    labelled = False
    by_split: Mapping[str, Sequence[Path]] = {}

    def __init__(self, inputs: Sequence[Path]) -> None:
        self.files = list(walk(inputs, NAMES, "no .txt or .jsonl file in this folder"))
        self.paths = [path for path, _ in self.files]

    def corpus(self) -> Iterator[Text]:
        for path, name in self.files:
            if not is_json(path):
                yield _whole_file(path, name)
                continue
            for where, record in json_lines(path):
                yield _line(where, record, name)

    def queries(self) -> Iterator[Text]:
        return iter(())

    def groups(self, split: str) -> Iterator[Labelled]:
        return iter(())


def _whole_file(path: Path, name: str) -> Text:
    try:
        text = decoded(whole_bytes(path), {}, is_file=True).text
    except BadRecordError as error:
        raise InputError(f"{path}: {error}") from error
    where = Where(path, 0)
    return Text(check_id(name, "its name", where), [text.strip()], where)


def _line(where: Where, record: Mapping[str, Any], name: str) -> Text:
    key = next((key for key in IDS if key in record), None)
    document = f"{name}:{where.line}" if key is None else check_id(record[key], key, where)
    return Text(document, [titled_text(record, TEXTS, where, may_be_empty=True)], where)
