"""Prompts: a query and passages in a template, as token ids that fit a decoder, and the labels that it may answer.

The ids are those of the whole prompt as text: each text is read where it stands, for a tokenizer may join its ends with
what is around it. Special tokens of the template are tokens; those that a query or a passage spells out are text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from deepsiam.models.batching.framing import TextEnd
from deepsiam.models.batching.packing import joined, pad
from deepsiam.models.interface import Vocabulary

PLACES = ("query", "document", "passages", "labels")
LINE_PLACES = ("label", "passage")
QUERY = -1  # the number of the query among the texts of a prompt; passages are numbered from 0
READ_AHEAD = 1 << 14  # texts whose cut is kept, for windows share passages, and passages of prompts whose ids are kept


class Reader(Vocabulary, Protocol):
    """A tokenizer that reads text."""

    @property
    def unk(self) -> int | None:
        """[UNK]."""

    def filled(self, parts: Sequence[str]) -> np.ndarray:
        """Return the ids, int64, of a filled template: literals at even numbers, texts at odd ones."""

    def clipped(self, text: str, max_tokens: int, kept_end: TextEnd) -> tuple[str, int]:
        """Return the first or last part of a text, of `max_tokens` at most, and its number of tokens."""


def places_of(template: str, names: Sequence[str]) -> list[str]:
    """Cut a template at its places, `{query}` and so on: literals at even numbers, names at odd ones."""
    return re.split(rf"\{{({'|'.join(names)})\}}", template)


class PromptFraming:
    """Queries and lists of passages become prompts of at most `max_tokens`.

    A query has at most `max_query_tokens`, a passage `max_document_tokens`; where a prompt is still too long, its
    longest passages are shortened to one length at which it fits.

    Attributes:
        is_list: whether a prompt has a list of passages, each with its label, and not one document.
        most: how many passages a prompt may have.
    """

    def __init__(
        self,
        vocabulary: Reader,
        template: str,
        line: str,
        labels: Sequence[str],
        *,
        max_tokens: int,
        max_query_tokens: int,
        max_document_tokens: int,
        kept_of_query: TextEnd = "start",
    ) -> None:
        """Fill `template`, and for each passage `line` where the template has {passages}."""
        self.vocabulary, self.labels, self.max_tokens = vocabulary, tuple(labels), max_tokens
        self.max_query_tokens, self.max_document_tokens = max_query_tokens, max_document_tokens
        self.kept_of_query = kept_of_query
        self.template, self.line = places_of(template, PLACES), places_of(line, LINE_PLACES)
        self.is_list = "passages" in self.template[1::2]
        self.most = len(labels) if self.is_list else 1
        self._clipped = lru_cache(READ_AHEAD)(vocabulary.clipped)
        self._ids = lru_cache(READ_AHEAD // self.most)(self._read)
        self._check_room()

    @cached_property
    def label_ids(self) -> list[int]:
        """The ids of the labels where they follow the template's end."""
        *parts, end = self._filled("\n", ["\n"] * self.most)  # any texts: only what follows the end is looked at
        end_ids, *longer_ids = (self.vocabulary.filled([*parts, end + label]).tolist() for label in ("", *self.labels))
        ids = list[int]()
        for label, all_ids in zip(self.labels, longer_ids, strict=True):
            label_tokens = all_ids[len(end_ids) :]
            if len(label_tokens) != 1 or label_tokens[0] == self.vocabulary.unk or all_ids[: len(end_ids)] != end_ids:
                raise ValueError(
                    f"method.labels: {label!r} is not a single token of the tokenizer after the template's end, "
                    f"{end[-20:]!r}: name labels that are, and end the template without a blank"
                )
            if label_tokens[0] in ids:
                raise ValueError(
                    f"method.labels: {label!r} is the same token as {self.labels[ids.index(label_tokens[0])]!r}"
                )
            ids += label_tokens
        return ids

    def row(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """Return the unpadded ids of a prompt, int64 [t]; there are `most` passages at most."""
        query, _ = self._clipped(query.strip(), self.max_query_tokens, self.kept_of_query)
        limit, clipped = self.max_document_tokens, [(text.strip(), 0) for text in passages]
        # The parts' tokens do not add up to the prompt's, for a tokenizer may join their ends: shorten, and count anew.
        while True:
            clipped = [self._clipped(text, limit, "start") for text, _ in clipped]
            ids = self._ids(query, tuple(text for text, _ in clipped))
            excess, lengths = len(ids) - self.max_tokens, [length for _, length in clipped]
            if excess <= 0 or not any(lengths):
                return ids
            limit = length_that_fits(lengths, sum(lengths) - excess)

    def arrays(self, rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `label_logits` from rows: `ids` int64 and `mask` bool, both [N, T]."""
        ids, mask = pad(rows, self.max_tokens, self.vocabulary.pad)
        return {"ids": ids, "mask": mask}

    def _read(self, query: str, passages: tuple[str, ...]) -> np.ndarray:
        # what the tokenizer puts before a text is added unless the template begins with it
        ids, (begin, _) = self.vocabulary.filled(self._filled(query, passages)), self.vocabulary.text_frame
        return joined([ids] if ids[: len(begin)].tolist() == [*begin] else [begin, ids], self.vocabulary)

    def _filled(self, query: str, passages: Sequence[str]) -> list[str]:
        """Fill the template: literals at even numbers, texts at odd ones."""
        pieces = [""]
        for part in self._parts(len(passages)):
            if isinstance(part, str):
                pieces[-1] += part
            else:
                pieces += [query if part == QUERY else passages[part], ""]
        return pieces

    def _parts(self, passages: int) -> Iterator[str | int]:
        """Yield the literals and the numbers of the texts of a prompt."""
        for i, part in enumerate(self.template):
            if i % 2 == 0:
                yield part
            elif part == "passages":
                for number, label in enumerate(self.labels[:passages]):
                    yield from (
                        piece if j % 2 == 0 else label.strip() if piece == "label" else number
                        for j, piece in enumerate(self.line)
                    )
            elif part == "labels":
                yield ", ".join(label.strip() for label in self.labels[: passages if self.is_list else None])
            else:
                yield QUERY if part == "query" else 0

    def _check_room(self) -> None:
        queries = self.template[1::2].count("query")  # tokens of the template: a prompt of one-token texts, less these
        template = len(self._read("a", ("a",) * self.most)) - queries - self.most
        if template + queries * self.max_query_tokens + self.most > self.max_tokens:
            raise ValueError(
                f"method.max_prompt_tokens={self.max_tokens} leaves no room for a passage beside a template of "
                f"{template} tokens and a query of method.max_query_tokens={self.max_query_tokens}"
            )


def length_that_fits(lengths: Sequence[int], room: int) -> int:
    """Return the largest length such that texts, cut to it, fit into the room together."""
    for count, length in enumerate(sorted(lengths)):  # the shortest stay whole; what they leave is shared equally
        share = room // (len(lengths) - count)
        if length > share:
            return max(share, 0)
        room -= length
    return max([0, *lengths])
