"""Prompts: a query and passages in a template, as token ids that fit a decoder, and the labels that it may answer.

The ids are those of the whole prompt as text: a blank before a text is read with the text, as tokenizers do. Special
tokens of the template are tokens; those that a query or a passage spells out are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from models.batching.framing import Kept, shorten
from models.batching.packing import joined, pad
from models.interface import Vocabulary

PLACES = ("query", "document", "passages", "labels")
LINE_PLACES = ("label", "passage")
QUERY = -1  # the number of the query among the texts of a prompt; passages are numbered from 0
READ_AHEAD = 1 << 14  # texts whose ids are kept: windows share passages


class Reader(Vocabulary, Protocol):
    """A tokenizer that reads text."""

    @property
    def unk(self) -> int | None:
        """[UNK]."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text without a frame."""

    def splitting(self, split_special_tokens: bool) -> Reader:
        """Return this tokenizer, which takes special tokens that a text spells out as text, or as tokens."""


def places_of(template: str, names: Sequence[str]) -> list[str]:
    """Cut a template at its places, `{query}` and so on: literals at even numbers, names at odd ones."""
    return re.split(rf"\{{({'|'.join(names)})\}}", template)


class Frame(NamedTuple):
    """What a prompt of some number of passages has beside its texts."""

    literals: list[np.ndarray]  # int64 ids, one before each text and one after the last
    texts: list[int]  # numbers of passages, or QUERY
    blanks: list[str]  # " " where the text takes the blank before it
    end: str  # the last literal


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
        kept_of_query: Kept = "start",
    ) -> None:
        """Fill `template`, and for each passage `line` where the template has {passages}.

        Raises:
            ValueError: a label is not a token, or passages would have no room.
        """
        self.vocabulary, self.labels, self.max_tokens = vocabulary, tuple(labels), max_tokens
        self.max_query_tokens, self.max_document_tokens = max_query_tokens, max_document_tokens
        self.kept_of_query = kept_of_query
        self.template, self.line = places_of(template, PLACES), places_of(line, LINE_PLACES)
        self.is_list = "passages" in self.template[1::2]
        self.most = len(labels) if self.is_list else 1
        self.anchor = _anchor(vocabulary)
        self._frame = lru_cache(256)(self._make_frame)
        self._ids = lru_cache(READ_AHEAD)(self._read)
        self._check_room()

    @cached_property
    def label_ids(self) -> list[int]:
        """The ids of the labels where they follow the template's end.

        Raises:
            ValueError: a label is not a single token there, or two labels are the same one.
        """
        reader, tail = self.vocabulary.splitting(False), self.anchor + self._frame(self.most).end
        (before,), after = reader.encode([tail]), reader.encode([tail + label for label in self.labels])
        ids = list[int]()
        for label, all_ids in zip(self.labels, after, strict=True):
            own = all_ids[len(before) :].tolist()
            if len(own) != 1 or own[0] == self.vocabulary.unk or all_ids[: len(before)].tolist() != before.tolist():
                raise ValueError(
                    f"method.labels: {label!r} is not a single token of the tokenizer after the template's end, "
                    f"{tail[-20:]!r}: name labels that are, and end the template without a blank"
                )
            if own[0] in ids:
                raise ValueError(f"method.labels: {label!r} is the same token as {self.labels[ids.index(own[0])]!r}")
            ids += own
        return ids

    def row(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """Return the unpadded ids of a prompt, int64; there are `most` passages at most."""
        frame = self._frame(len(passages))
        written = [query if text == QUERY else passages[text] for text in frame.texts]
        passage = [text != QUERY for text in frame.texts]
        texts = [blank + text.strip() for blank, text in zip(frame.blanks, written, strict=True)]
        ids = [self._ids(text, of) for text, of in zip(texts, passage, strict=True)]
        lengths = [len(own) for own, of in zip(ids, passage, strict=True) if of]
        queries = [own for own, of in zip(ids, passage, strict=True) if not of]
        longest = length_that_fits(lengths, self.max_tokens - sum(map(len, [*frame.literals, *queries])))
        cut = [own[:longest] if of else own for own, of in zip(ids, passage, strict=True)]
        return joined([frame.literals[0], *chain(*zip(cut, frame.literals[1:], strict=True))], self.vocabulary)

    def arrays(self, rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `label_logits` from rows: `ids` int64 and `mask` bool, both [N, T]."""
        ids, mask = pad(rows, self.max_tokens, self.vocabulary.pad)
        return {"ids": ids, "mask": mask}

    def _make_frame(self, passages: int) -> Frame:
        """Join what is literal, and read it; a blank before a text is left to the text."""
        literals, texts = [""], list[int]()
        for part in self._parts(passages):
            if isinstance(part, str):
                literals[-1] += part
            else:
                texts.append(part)
                literals.append("")
        cut = [literal.removesuffix(" ") for literal in literals[:-1]] + literals[-1:]
        blanks = [literal[len(kept) :] for literal, kept in zip(literals[:-1], cut[:-1], strict=True)]
        reader = self.vocabulary.splitting(False)
        ids = [own.astype(np.int64) for own in [*reader.encode(cut[:1]), *self._continued(reader, cut[1:])]]
        begin = np.array(self.vocabulary.text_frame[0], np.int64)
        if ids[0][: len(begin)].tolist() != begin.tolist():
            ids[0] = np.concatenate([begin, ids[0]])
        return Frame(ids, texts, blanks, literals[-1])

    def _parts(self, passages: int) -> Iterator[str | int]:
        """Yield the literals and the numbers of the texts of a prompt."""
        for i, part in enumerate(self.template):
            if i % 2 == 0:
                yield part
            elif part == "passages":
                yield from self._lines(passages)
            elif part == "labels":
                yield ", ".join(label.strip() for label in self.labels[: passages if self.is_list else None])
            else:
                yield QUERY if part == "query" else 0

    def _lines(self, passages: int) -> Iterator[str | int]:
        for number, label in enumerate(self.labels[:passages]):
            for i, part in enumerate(self.line):
                yield part if i % 2 == 0 else label.strip() if part == "label" else number

    def _read(self, text: str, is_passage: bool) -> np.ndarray:
        (ids,) = self._continued(self.vocabulary.splitting(True), [text])
        if is_passage:
            return ids[: self.max_document_tokens]
        return shorten(ids, self.max_query_tokens, self.kept_of_query)

    def _continued(self, reader: Reader, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of texts that stand within a prompt."""
        (anchor,), ids = reader.encode([self.anchor]), reader.encode([self.anchor + text for text in texts])
        return [own[len(anchor) :] for own in ids]

    def _check_room(self) -> None:
        frame = self._frame(self.most)
        template, queries = sum(map(len, frame.literals)), frame.texts.count(QUERY)
        if template + queries * self.max_query_tokens + self.most > self.max_tokens:
            raise ValueError(
                f"method.max_prompt_tokens={self.max_tokens} leaves no room for a passage beside a template of "
                f"{template} tokens and a query of method.max_query_tokens={self.max_query_tokens}"
            )


def _anchor(vocabulary: Reader) -> str:
    """Return what to put before a text that is not the first: "" unless the tokenizer adds a blank to every text."""
    first, new_line, after = vocabulary.encode(["a", "\n", "\na"])
    return "" if after[len(new_line) :].tolist() == first.tolist() else "\n"


def length_that_fits(lengths: Sequence[int], room: int) -> int:
    """Return the largest length such that texts, cut to it, fit into the room together."""
    left = room
    for done, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - done)
        if length > share:
            return max(share, 0)
        left -= length
    return max([0, *lengths])
