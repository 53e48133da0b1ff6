"""The inverse cloze task (Lee et al., 2019, section 4): a sentence must find the passage it was taken from.

    a sentence ---> encoder --> [CLS] --+
                       |                +--> dot products --> softmax over the passages of the micro-batch
    its passage --> encoder --> [CLS] --+

A baseline of the Cross-Thought paper (section 4.3), built as described there: one encoder for both, and the dot product
of the [CLS] states.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import frame, pad, spread, text_tokens
from deepsiam.models.batching.sentences import SentenceBatcher, passages
from deepsiam.models.config import unhashed
from deepsiam.models.encode import encode, in_one_run, unpadding_kernel
from deepsiam.models.interface import Batcher, MicroBatch, TokenDocument, Vocabulary
from deepsiam.models.layers.pooling import Pooling, pool
from deepsiam.models.layers.ranking_losses import in_batch_softmax
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.trunk import Encoder, require_bidirectional


class IctConfig(PretrainingConfig):
    """The inverse cloze task: a sentence finds the passage that it was taken from."""

    loss_terms = ("ict",)
    start_keys = ("pooling",)
    negatives: ClassVar[str] = "micro_batch"  # the other passages

    name: Literal["ict"]
    max_tokens: int = Field(288, ge=8)
    max_query_tokens: int = Field(64, ge=8)
    remove: float = Field(0.9, ge=0, le=1)  # the share of passages that are shown without their sentence
    pooling: Literal["cls", "mean", "last"] = unhashed("cls")  # of a causal trunk by default `last`

    @property
    def input_lengths(self) -> dict[str, int]:
        return {f"method.{key}": getattr(self, key) for key in ("max_tokens", "max_query_tokens")}

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return IctBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return Ict(trunk, self.pooling)


@dataclass(frozen=True)
class Passage:
    """Two or more consecutive sentences (token ids) of one document, and a hash of that document's tokens."""

    sentences: list[np.ndarray]
    document: bytes


class IctBatcher(SentenceBatcher[Passage]):
    """Documents -> passages -> queries [Q, Lq] and passages [Q, Lp]; passage i is query i's own.

    Arrays: `query_ids`, `passage_ids` int64; `query_mask`, `passage_mask` bool; `allowed` bool [Q, Q], false where a
    passage other than the query's own is from the same document or contains the query's sentence too.
    """

    def __init__(self, keys: IctConfig, vocabulary: Vocabulary) -> None:
        """Cut passages and draw a query from each; a longer sentence is truncated at its end."""
        self.keys, self.vocabulary = keys, vocabulary

    def micro_batch(self, examples: Sequence[Passage], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each passage's query, and whether to remove it, with the passage's own rng."""
        draws = [self._draw(passage.sentences, rng) for passage, rng in zip(examples, rngs, strict=True)]
        sentences, passages = zip(*draws, strict=True)
        queries = [frame(sentence, self.vocabulary, self.keys.max_query_tokens) for sentence in sentences]
        query_ids, query_mask = pad(queries, self.keys.max_query_tokens, self.vocabulary.pad)
        passage_ids, passage_mask = pad(passages, self.keys.max_tokens, self.vocabulary.pad)
        arrays = {
            "query_ids": query_ids,
            "query_mask": query_mask,
            "passage_ids": passage_ids,
            "passage_mask": passage_mask,
            "allowed": _allowed(examples, sentences),
        }
        return MicroBatch(arrays, {"ict": len(examples)}, text_tokens([*queries, *passages], self.vocabulary))

    def numbered(self, documents: Sequence[TokenDocument]) -> list[tuple[int, Passage]]:
        room = self.keys.max_tokens - sum(map(len, self.vocabulary.text_frame))
        numbered: list[tuple[int, Passage]] = []
        for number, document in enumerate(documents):
            parts = passages(document, room)
            if parts:
                name = hashlib.blake2b(_bytes(document.segments), digest_size=16).digest()
                numbered += [(number, Passage(part, name)) for part in parts]
        return spread(numbered)

    def _draw(self, texts: Sequence[np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a sentence, and frame the passage as it is shown."""
        number = int(rng.integers(len(texts)))
        is_removed = rng.random() < self.keys.remove  # at times kept, so that equal words count too (section 4)
        remaining = [text for i, text in enumerate(texts) if not (is_removed and i == number)]
        return texts[number], frame(np.concatenate(remaining), self.vocabulary)


def _bytes(texts: Sequence[np.ndarray]) -> bytes:
    return np.concatenate(texts, dtype=np.int64).tobytes()


def _allowed(examples: Sequence[Passage], queries: Sequence[np.ndarray]) -> np.ndarray:
    """Return bool [Q, Q], true where passage j is query i's own or a negative for it.

    A negative is from another document and does not contain the query's sentence: replies to the same utterance would
    all repeat it.
    """
    numbers: dict[bytes, int] = {}
    documents = np.array([numbers.setdefault(passage.document, len(numbers)) for passage in examples])
    holders: dict[bytes, list[int]] = {}
    for number, passage in enumerate(examples):
        for sentence in passage.sentences:
            holders.setdefault(_bytes([sentence]), []).append(number)
    mask = documents[:, None] != documents
    for number, query in enumerate(queries):
        mask[number, holders[_bytes([query])]] = False
    np.fill_diagonal(mask, True)
    return mask


class Ict(Encoder):
    """One encoder (`trunk.`) for sentences and passages, with no other parameters."""

    def __init__(self, trunk: PreTrainedModel, pooling: Pooling = "cls") -> None:
        super().__init__()
        if pooling == "cls":
            require_bidirectional(trunk, "set method.pooling=last")
        self.trunk, self.pooling = trunk, pooling

    def forward(
        self, query_ids: Tensor, query_mask: Tensor, passage_ids: Tensor, passage_mask: Tensor, allowed: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `IctBatcher` as tensors -> {"ict": the sum over queries}."""
        texts, run = [(query_ids, query_mask), (passage_ids, passage_mask)], partial(encode, self.trunk)
        # where padding is computed, one run would pad the queries to the passages' width
        at_once = unpadding_kernel(self.trunk, query_ids.device) is not None
        states = in_one_run(run, *texts) if at_once else [run(*side) for side in texts]
        queries, passages = (
            pool(each, mask, self.pooling) for each, (_, mask) in zip(states, texts, strict=True)
        )  # [Q, H]
        targets = torch.arange(len(queries), device=queries.device)  # passage i is query i's own
        return {"ict": in_batch_softmax(queries @ passages.T, targets, allowed)}
