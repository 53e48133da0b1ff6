"""Turn queries or documents into the arrays that an encoder reads, in training and in search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from deepsiam.models.batching.packing import joined, pad
from deepsiam.models.interface import Prompt, Vocabulary, required

TextEnd = Literal["start", "end"]
Array = TypeVar("Array")  # numpy or torch
NOT_TEXT = ("document_keys",)  # arrays of documents that no encoder reads
PairFrame = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def shorten(tokens: np.ndarray, max_tokens: int, kept_end: TextEnd) -> np.ndarray:
    """Return the first or the last tokens of a text [t], `max_tokens` at most."""
    return tokens[max(0, len(tokens) - max_tokens) :] if kept_end == "end" else tokens[:max_tokens]


@dataclass(frozen=True)
class Framing:
    """Texts become what the tokenizer makes, such as `[CLS] text [SEP]`: at most `max_tokens`, padded to the longest.

    A prompt comes after the tokenizer's own prefix, `[CLS] prompt text [SEP]`, and is never truncated. A model with
    another input format extends this class.
    """

    vocabulary: Vocabulary
    max_tokens: int  # with the tokenizer's frame and the prompt
    kept_end: TextEnd = "start"  # "end" truncates the start: the last turns of a dialogue tell most about the next
    prompt: Prompt | None = None
    pools_prompt: bool = True  # whether the states of the prompt, and of what is before it, count in a mean of states

    @property
    def before(self) -> tuple[int, ...]:
        """The ids before the prompt and the text."""
        return self.vocabulary.text_frame[0]

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompt."""
        return len(self.prompt.ids) if self.prompt else 0

    @property
    def room(self) -> int:
        """The maximum number of text tokens in an input; a token more where prompt and text share one."""
        return self.max_tokens - len(self.before) - len(self.vocabulary.text_frame[1]) - self.prompt_tokens

    def cut(self, tokens: np.ndarray) -> np.ndarray:
        """Return the token ids [t] that remain after truncation: texts equal in these have equal vectors."""
        room = self.room
        if self.kept_end == "end" and len(tokens) > room:
            return shorten(tokens, room, self.kept_end)
        return self.prompt.fitting(tokens, room + self.prompt_tokens) if self.prompt else tokens[:room]

    def row(self, text: np.ndarray) -> np.ndarray:
        """Return the unpadded input of a text, int64 [t]."""
        return self.framed(self.cut(text))

    def framed(self, text: np.ndarray) -> np.ndarray:
        """Return the input of a text that is short enough, int64 [t]: with its prompt and the tokenizer's frame."""
        with_prompt = self.prompt.before(text)[: self.room + self.prompt_tokens] if self.prompt else text
        return joined((self.before, with_prompt, self.vocabulary.text_frame[1]), self.vocabulary)

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `embed_queries` or `embed_documents`: `ids` int64 and `mask` bool, both [B, T].

        Without `pools_prompt` also `kept`, bool: true in the slots of the text and of what follows it.
        """
        ids, mask = pad([self.row(text) for text in texts], self.max_tokens, self.vocabulary.pad)
        return {"ids": ids, "mask": mask, **self.pooled(mask)}

    def pooled(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Make `kept` of a mask, bool [..., T], where the prompt is left out of a mean of states that has others."""
        if self.pools_prompt or not self.prompt:
            return {}
        text_start = len(self.before) + self.prompt_tokens
        counted = mask & (np.arange(mask.shape[-1]) >= text_start)
        # a text without tokens has the mean of its prompt: a mean of nothing is NaN
        return {"kept": np.where(counted.any(axis=-1, keepdims=True), counted, mask)}


@dataclass(frozen=True)
class ChunkFraming(Framing):
    """Texts become up to `chunks` inputs of `max_tokens` each, one after another: `ids` and `mask` are [B, C, T].

    Every chunk has the prompt. A text with fewer than C chunks is filled up with inputs of [CLS] alone, or else of
    [PAD], recognisable by their empty slot 1. Other chunks than the first have two tokens: without a frame, a single
    token left is no chunk.
    """

    chunks: int = 1

    def cut(self, tokens: np.ndarray) -> np.ndarray:
        return tokens[: self.chunks * self.room]

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        size = self.room
        spare = int(size == self.max_tokens)  # without a frame, a single token at the end is dropped
        pieces = [
            [text[at : at + size] for at in range(0, max(1, len(text) - spare), size)] for text in map(self.cut, texts)
        ]
        max_chunks = max(map(len, pieces))
        nothing = np.array([self.vocabulary.pad if self.vocabulary.cls is None else self.vocabulary.cls])
        rows = [[*map(self.framed, chunks), *[nothing] * (max_chunks - len(chunks))] for chunks in pieces]
        ids, mask = pad([row for chunks in rows for row in chunks], self.max_tokens, self.vocabulary.pad)
        ids, mask = ids.reshape(len(texts), max_chunks, -1), mask.reshape(len(texts), max_chunks, -1)
        return {"ids": ids, "mask": mask, **self.pooled(mask)}


@dataclass(frozen=True, kw_only=True)
class MarkedFraming(Framing):
    """Texts become `[CLS] marker text [SEP]`, or `marker text [SEP]`, with a prompt, if any, before the text."""

    marker: int  # a token unknown to the tokenizer: its embedding row comes after the tokenizer's
    replaces_cls: bool = False

    @property
    def before(self) -> tuple[int, ...]:
        return (self.marker,) if self.replaces_cls else (*super().before, self.marker)


@dataclass(frozen=True)
class PairFraming:
    """A query and a document become a pair of their tokenizer's, such as `[CLS] query [SEP] document [SEP]`.

    Each is truncated as if it were a single text, and the longer one further where a pair is too long.
    """

    query: Framing
    document: Framing
    separators: int | None = None  # [SEP]s between the texts; None: those of the tokenizer's pairs
    max_tokens: int | None = None  # of a pair; the longer text loses what is too much, as in Hugging Face's tokenizers

    @property
    def around(self) -> PairFrame:
        """The ids before, between and after the two texts."""
        vocabulary = self.query.vocabulary
        if self.separators is None:
            return vocabulary.pair_frame
        cls, sep = required(vocabulary, "cls"), required(vocabulary, "sep")
        return (cls,), (sep,) * self.separators, (sep,)

    @property
    def frame(self) -> int:
        """The number of special tokens of a pair."""
        return sum(map(len, self.around))

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a pair."""
        tokens = self.query.room + self.document.room + self.frame
        return tokens if self.max_tokens is None else min(tokens, self.max_tokens)

    def cut(self, query: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both texts' token ids after truncation: pairs equal in these have equal scores."""
        lengths = len(query), len(document)
        query, document = self.query.cut(query), self.document.cut(document)
        room = self.longest - self.frame
        if len(query) + len(document) <= room:
            return query, document
        shorter = min(len(query), len(document), room // 2)  # a text of half the room or less stays whole
        query_room = shorter if (len(query), lengths[0]) <= (len(document), lengths[1]) else room - shorter
        query = shorten(query, query_room, self.query.kept_end)
        return query, shorten(document, room - query_room, self.document.kept_end)

    def arrays(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `score_pairs` from P queries and P documents, one of each per pair.

        They are `ids` int64, `mask` bool, and `types` int64 (1 in the slots of the document and its [SEP]); all [P, T].
        """
        pairs = [self.cut(query, document) for query, document in zip(queries, documents, strict=True)]
        return _arrays(pairs, self.around, self.longest, self.query.vocabulary)


@dataclass(frozen=True)
class DuelFraming:
    """A query and two documents become `[CLS] query [SEP] first [SEP] second [SEP]`, framed as the tokenizer's pairs.

    The query is truncated as if it were a single text, and each document also to half of what the query leaves.
    """

    query: Framing
    document: Framing
    max_tokens: int  # of a duel

    @property
    def frame(self) -> int:
        """The number of special tokens of a duel."""
        prefix, separator, suffix = self.query.vocabulary.pair_frame
        return len(prefix) + 2 * len(separator) + len(suffix)

    @property
    def longest(self) -> int:
        """The maximum number of tokens of a duel."""
        return min(self.query.room + 2 * self.document.room + self.frame, self.max_tokens)

    @property
    def room(self) -> int:
        """How many tokens each document has beside the longest query."""
        return self._half(self.query.room)

    def cut(self, query: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of the query and of one of its documents that remain after truncation."""
        query = self.query.cut(query)
        return query, self.document.cut(document)[: self._half(len(query))]

    def _half(self, query_tokens: int) -> int:
        return (self.max_tokens - query_tokens - self.frame) // 2

    def arrays(
        self, queries: Sequence[np.ndarray], firsts: Sequence[np.ndarray], seconds: Sequence[np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Make the arguments of `score_duels` from D queries and two documents for each.

        They are `ids` int64, `mask` bool, and `types` int64 (1 in the slots of the first document and its [SEP], 2 in
        those of the second); all [D, T].
        """
        duels = [
            (*self.cut(query, first), self.cut(query, second)[1])
            for query, first, second in zip(queries, firsts, seconds, strict=True)
        ]
        return _arrays(duels, self.query.vocabulary.pair_frame, self.longest, self.query.vocabulary)


def side_arrays(framings: Mapping[str, Framing], texts: Mapping[str, Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """Frame and pad the texts of each side: `query_ids`, `query_mask`, ...; `arguments_of` undoes the names."""
    return {
        f"{side}_{name}": array
        for side, framing in framings.items()
        for name, array in framing.arrays(texts[side]).items()
    }


def arguments_of(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arguments of one side's encoder."""
    arguments = {name: array for name, array in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in arguments.items() if name not in NOT_TEXT}


def _arrays(
    inputs: Sequence[Sequence[np.ndarray]], around: PairFrame, max_tokens: int, vocabulary: Vocabulary
) -> dict[str, np.ndarray]:
    """Make padded rows of each input's texts, which have token types 0, 1, ...; what follows a text has its type."""
    prefix, separator, suffix = around
    rows = []
    for first_text, *later_texts in inputs:
        parts = [prefix, first_text, *(part for text in later_texts for part in (separator, text)), suffix]
        rows.append(joined(parts, vocabulary))
    ids, mask = pad(rows, max_tokens, vocabulary.pad)
    lengths = np.array([[len(text) + len(separator) for text in texts[:-1]] for texts in inputs])
    lengths[:, 0] += len(prefix)
    starts = lengths.cumsum(axis=1)  # of all texts but the first, [N, n - 1]
    types = (np.arange(ids.shape[1])[:, None] >= starts[:, None]).sum(axis=2) * mask
    return {"ids": ids, "mask": mask, "types": types.astype(np.int64)}
