"""Docstrings of Python files, which are parsed and never imported: a document each, or pairs of name, summary, body."""

import re
from collections.abc import Iterator
from dataclasses import replace

from deepsiam.data_prep.sources.docstrings.modules import TEST_FOLDERS, Docstring, docstrings_of
from deepsiam.data_prep.sources.document import BadRecordError, Document, Dropped
from deepsiam.data_prep.sources.pairing import pairs_of
from deepsiam.data_prep.sources.plain_text import MAX_BYTES, NO_TEXT, whole_bytes, whole_file
from deepsiam.data_prep.sources.source import PAIRS, Choices, File, Piece, Source, finder

KIND = "python"

_NAME = re.compile(r".*\.py", re.DOTALL)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")  # of a name in any case: HTTPServer, to_csv


def _read(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    if not TEST_FOLDERS.isdisjoint(file.name.split("/")):
        yield Dropped("test")
        return
    content = whole_bytes(piece.content)
    if not content:
        yield NO_TEXT
        return
    if len(content) > MAX_BYTES:
        raise BadRecordError(f"more than {MAX_BYTES:,} bytes")
    docstrings, dropped = docstrings_of(content, file.name)
    for reason in dropped.elements():
        yield Dropped(reason)
    for docstring in docstrings:
        document = replace(docstring.document, group=file.name)
        if choices["pairs"]:
            yield from pairs_of(document, _described(docstring))
        else:
            yield document


def _described(docstring: Docstring) -> Iterator[tuple[str, str]]:
    """Yield the name, as words, with the summary, and the summary with the body."""
    path, _, name = docstring.document.id.removeprefix(f"{KIND}/").rpartition(":")
    parts = path.removesuffix(".py").split("/")
    spoken = [part for part in parts if part != "__init__"] if name == "<module>" else [parts[0], name]
    words = " ".join(_WORD.findall(" ".join(spoken).partition("#")[0])).lower()
    if docstring.summary:
        yield words, docstring.summary
        yield docstring.summary, docstring.body


# One document per docstring of English prose, `python/FILE:NAME`; its file is its group. Dropped: docstrings of tests,
# without prose, too short or in another language, and files that this version of Python cannot parse.
PYTHON = Source(
    summary="the docstrings of Python files, one document each",
    find=finder(KIND, _NAME, "no .py file in this folder; name a folder of Python packages"),
    pieces=whole_file,
    read=_read,
    paragraphs=False,
    options=(PAIRS,),
    example="site-packages/ --out data/python --pairs",
)
