"""A document of token ids, and the JSON in which a chunk stores everything about documents but the token ids."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

KEY = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, eq=False, slots=True)
class TokenDocument:
    """A document as token ids.

    The segments are the ids of each sentence, utterance or heading, uint16 or uint32, without special tokens.
    """

    segments: Sequence[np.ndarray]
    id: str = ""  # its name, made by the source
    group: str = ""  # the id of the thread, book or page that it is a part of, shared by all parts; "": its own group
    headings: tuple[int, ...] = ()  # the numbers of the segments that are headings
    context: int = 0  # how many leading segments are repeated from another document of the group
    key: int | None = None  # the 64-bit hash of its text; None if no preparation set it


def to_json(documents: Sequence[TokenDocument]) -> bytes:
    """Return the ids of the documents and, where any document needs it, a list of each other attribute."""
    columns: dict[str, list[Any]] = {"documents": [document.id for document in documents]}
    if any(document.group not in ("", document.id) for document in documents):
        columns["groups"] = [document.group or document.id for document in documents]
    keys = [f"{document.key:016x}" for document in documents if document.key is not None]
    if len(keys) == len(documents):
        columns["keys"] = keys
    if any(document.headings for document in documents):
        columns["headings"] = [list(document.headings) for document in documents]
    if any(document.context for document in documents):
        columns["context"] = [document.context for document in documents]
    return json.dumps(columns).encode()


def from_json(content: bytes, texts: Sequence[Sequence[np.ndarray]]) -> list[TokenDocument]:
    """Return the documents that have the segments `texts`; a group that is not stored is the document's id.

    Raises:
        ValueError: the JSON is damaged or cannot belong to these segments.
    """
    try:
        columns = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("its .json is not JSON") from error
    if not isinstance(columns, dict):
        raise ValueError("its .json is not an object")
    number = len(texts)
    ids = _column(columns, "documents", number, lambda name: isinstance(name, str))
    groups = _column(columns, "groups", number, lambda name: isinstance(name, str), ids)
    keys = _column(columns, "keys", number, lambda key: isinstance(key, str) and KEY.fullmatch(key), [None] * number)
    headings = _column(
        columns, "headings", number, lambda ids: isinstance(ids, list) and all(map(_is_number, ids)), [()] * number
    )
    context = _column(columns, "context", number, _is_number, [0] * number)
    for segments, heading_numbers, leading in zip(texts, headings, context, strict=True):
        if any(heading >= len(segments) for heading in heading_numbers) or leading > len(segments):
            raise ValueError(f"its .json names more segments than the {len(segments)} of a document")
        if any(next_heading <= heading for heading, next_heading in pairwise(heading_numbers)):
            raise ValueError(f"its .json lists the headings {heading_numbers!r:.40} of a document out of order")
    return [
        TokenDocument(segments, id_, group or id_, tuple(heading_numbers), leading, key and int(key, 16))
        for segments, id_, group, heading_numbers, leading, key in zip(
            texts, ids, groups, headings, context, keys, strict=True
        )
    ]


def _column(
    columns: dict[str, Any], name: str, length: int, is_valid: Callable[[Any], Any], default: list[Any] | None = None
) -> list[Any]:
    """Return one value for each document."""
    if name not in columns and default is not None:
        return default
    column = columns.get(name)
    if not isinstance(column, list) or len(column) != length:
        raise ValueError(f"its .json has no list {name!r} of {length} items")
    for value in column:
        if not is_valid(value):
            raise ValueError(f"its .json lists {value!r:.40} among the {name}")
    return column


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0
