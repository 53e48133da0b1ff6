"""What writes queries: a model of a folder or of a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from deepsiam.trainer.ranking.asking.prompts import Prompt

NEW_TOKENS = 64  # of an answer
DOCUMENT_TOKENS = 512  # of a document, usually


class Request(NamedTuple):
    """A query that is asked for."""

    prompt: Prompt
    document: str
    key: tuple[int, int, int]  # the seed, the hash of the document, the number of the query: what a draw depends on


class Answer(NamedTuple):
    """What a model wrote."""

    text: str
    is_whole: bool  # it came to an end
    is_cut: bool  # the model has not read all of the document


class Writer(ABC):
    """Writes an answer to each request, which depends on the request alone.

    Attributes:
        block: how many documents are asked about between two files.
        about: what decides the answers, as JSON values.
    """

    block: int
    about: dict[str, Any]

    @abstractmethod
    def write(self, requests: Sequence[Request], report: Callable[[int], None]) -> list[Answer]:
        """Return the answers; `report` is told how many there are so far. Raise InputError where there is none."""
