"""The inverse cloze task (Lee et al., 2019, section 4): from a sentence, find the passage that it was taken from.

    a sentence ---> encoder --> [CLS] --+
                       |                +--> dot products --> softmax over the passages of the micro-batch
    its passage --> encoder --> [CLS] --+

A baseline of the Cross-Thought paper (section 4.3), built as it says: one encoder for both, and the dot product of the
[CLS] states themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.blocks import pad, scatter
from models.encoder import TrunkModel, check_cls_sees_the_text, encode, pool
from models.losses import in_batch_softmax
from models.sentences import check_boundaries, frame, sentences
from models.task import Document, MicroBatch, Vocabulary


@dataclass(frozen=True)
class Passage:
    """Two or more consecutive sentences (token ids) of one document, and a hash of that document's tokens."""

    sentences: list[np.ndarray]
    document: bytes


class IctBatcher:
    """Documents -> passages -> queries [Q, Lq] and passages [Q, Lp]; passage i is query i's own.

    Arrays: `query_ids`, `passage_ids` int64; `query_mask`, `passage_mask` bool; `allowed` bool [Q, Q], false where a
    passage other than the query's own is of the same document or has the query's sentence, too.
    """

    def __init__(
        self, vocabulary: Vocabulary, max_tokens: int = 288, max_query_tokens: int = 64, remove: float = 0.9
    ) -> None:
        """The defaults are those of Lee et al.

        Args:
            vocabulary: gives [CLS], [SEP] and [PAD].
            max_tokens: the longest passage, [CLS] and [SEP] included.
            max_query_tokens: the longest query, with both too; a longer sentence loses its end.
            remove: in how many of the cases the passage is shown without the sentence, 0 to 1.
        """
        if min(max_tokens, max_query_tokens) < 3:
            raise ValueError("max_tokens and max_query_tokens must be at least 3 ([CLS], a token, [SEP])")
        if not 0 <= remove <= 1:
            raise ValueError(f"remove must be between 0 and 1, not {remove}")
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        self.max_query_tokens = max_query_tokens
        self.remove = remove

    def examples(self, documents: Sequence[Document]) -> list[Passage]:
        """The passages of all documents, headings left out; one sentence alone is none, for nothing is around it.

        Raises:
            ValueError: the documents are not divided into sentences.
        """
        check_boundaries(documents)
        return [passage for _, passage in self._numbered(documents)]

    def origins(self, documents: Sequence[Document]) -> list[list[int]]:
        """Each passage is of one document."""
        return [[number] for number, _ in self._numbered(documents)]

    def micro_batch(self, examples: Sequence[Passage], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each passage's query, and whether it is removed, with the passage's own rng."""
        drawn = [self._draw(passage.sentences, rng) for passage, rng in zip(examples, rngs, strict=True)]
        sentences, passages = zip(*drawn, strict=True)
        queries = [frame(sentence[: self.max_query_tokens - 2], self.vocabulary) for sentence in sentences]
        query_ids, query_mask = pad(queries, self.max_query_tokens, self.vocabulary.pad)
        passage_ids, passage_mask = pad(passages, self.max_tokens, self.vocabulary.pad)
        arrays = {
            "query_ids": query_ids,
            "query_mask": query_mask,
            "passage_ids": passage_ids,
            "passage_mask": passage_mask,
            "allowed": _allowed(examples, sentences),
        }
        return MicroBatch(arrays, {"ict": len(examples)})

    def _numbered(self, documents: Sequence[Document]) -> list[tuple[int, Passage]]:
        """All passages with the numbers of their documents, in an order that parts those of one document."""
        longest = self.max_tokens - 2
        found = []
        for number, document in enumerate(documents):
            parts = _passages(*sentences(document, longest), longest)
            if parts:
                name = hashlib.blake2b(_bytes(document), digest_size=16).digest()
                found += [(number, Passage(part, name)) for part in parts]
        return scatter(found)

    def _draw(self, texts: Sequence[np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A sentence, and the passage as it is shown, framed."""
        chosen = int(rng.integers(len(texts)))
        removed = rng.random() < self.remove
        shown = [text for i, text in enumerate(texts) if not (removed and i == chosen)]
        return texts[chosen], frame(np.concatenate(shown), self.vocabulary)


def _passages(texts: Sequence[np.ndarray], context: int, longest: int) -> list[list[np.ndarray]]:
    """Runs of sentences, as many as have at most `longest` tokens together, of two or more and not all of them context.

    `context` leading sentences are passages of another document.
    """
    runs: list[list[np.ndarray]] = []
    room = 0
    for text in texts:
        if len(text) > room:
            runs.append([])
            room = longest
        runs[-1].append(text)
        room -= len(text)
    ends = np.cumsum([len(run) for run in runs])
    return [run for run, end in zip(runs, ends, strict=True) if len(run) > 1 and end > context]


def _bytes(texts: Sequence[np.ndarray]) -> bytes:
    return np.concatenate(texts, dtype=np.int64).tobytes()


def _allowed(examples: Sequence[Passage], queries: Sequence[np.ndarray]) -> np.ndarray:
    """bool [Q, Q]: passage j may stand against query i's own, or is it.

    A passage of the query's document may not, nor one that has the query's sentence itself, as replies to one utterance
    repeat it.
    """
    numbers: dict[bytes, int] = {}
    documents = np.array([numbers.setdefault(passage.document, len(numbers)) for passage in examples])
    holders: dict[bytes, list[int]] = {}
    for number, passage in enumerate(examples):
        for sentence in passage.sentences:
            holders.setdefault(_bytes([sentence]), []).append(number)
    allowed = documents[:, None] != documents
    for number, query in enumerate(queries):
        allowed[number, holders[_bytes([query])]] = False
    np.fill_diagonal(allowed, True)
    return allowed


class Ict(TrunkModel):
    """One encoder (`trunk.`) for sentences and passages; nothing else is learned."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        """`trunk` as `models.encoder.build_trunk` makes it; ValueError if it is causal, where [CLS] sees no text."""
        super().__init__()
        check_cls_sees_the_text(trunk)
        self.trunk = trunk

    def forward(
        self, query_ids: Tensor, query_mask: Tensor, passage_ids: Tensor, passage_mask: Tensor, allowed: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `IctBatcher` as tensors -> {"ict": the sum over queries}."""
        queries = pool(encode(self.trunk, query_ids, query_mask), query_mask, "cls")  # [Q, H]
        passages = pool(encode(self.trunk, passage_ids, passage_mask), passage_mask, "cls")  # [Q, H]
        own = torch.arange(len(queries), device=queries.device)
        return {"ict": in_batch_softmax(queries @ passages.T, own, allowed)}
