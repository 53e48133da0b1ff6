"""Subtitles: .srt files, one document each."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepsiam import register
from deepsiam.data_prep.sources.document import Document, Dropped
from deepsiam.data_prep.sources.plain_text import NO_TEXT, whole_file, whole_text
from deepsiam.data_prep.sources.source import Choices, File, Piece, Source, named, walk

_NAME = re.compile(r".*\.srt", re.IGNORECASE)
_CUE = re.compile(r"^[\d:,]+ --> .*\n(.+(?:\n.+)*)", re.MULTILINE)


def _find(paths: Sequence[Path]) -> Iterator[File]:
    return named("subtitles", walk(paths, _NAME, "no .srt file in this folder; name one with some"))


def _read(file: File, piece: Piece, choices: Choices) -> Iterator[Document | Dropped]:
    text, guessed = whole_text(piece.content, choices)
    utterances = _CUE.findall(text.replace("\r\n", "\n"))
    yield Document(file.name, tuple(utterances), guessed=guessed) if utterances else NO_TEXT


SUBTITLES = Source("subtitles: .srt files, one document each", _find, whole_file, _read, paragraphs=False)


register("source", "subtitles", SUBTITLES)
