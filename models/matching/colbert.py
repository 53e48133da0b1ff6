"""ColBERT (Khattab & Zaharia, 2020): one vector per token; each query vector is scored with its best document vector.

    [CLS] [Q] query [SEP] [MASK] ... [MASK] --> encoder --> linear --> q_1 ... q_n --+
                                                                                     +--> sum_i max_j <q_i, d_j>
    [CLS] [D] document [SEP]                --> encoder --> linear --> d_1 ... d_k --+

The vectors have length 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.batching.framing import Framing
from deepsiam.models.batching.roles import require_roles
from deepsiam.models.encode import encode_slots, encode_texts
from deepsiam.models.interface import Vocabulary
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderBatcher, DualEncoderConfig
from deepsiam.models.trunk import require_bidirectional
from deepsiam.models.vectors import Vectors, score_in_blocks


class ColbertConfig(DualEncoderConfig):
    """Fine-tuning of ColBERT. The paper's loss is softmax with `negatives: own`, one for each query."""

    folder_kind = "ColBERT"
    of_start = ("dimension", "expansion", "skip_list", "max_query_tokens", *DualEncoderConfig.of_start)

    name: Literal["colbert"]
    dimension: PositiveInt = 128  # size of a vector
    max_query_tokens: int = Field(32, ge=4)  # every query is filled up to this length
    max_document_tokens: int = Field(180, ge=4)
    # whether queries are filled up with [MASK]s, and other tokens attend to these; the tokens of documents without a
    # vector, by default all punctuation; left out of a recipe at their defaults, they are no part of its identity
    expansion: Literal["attended", "unattended", "none"] = Field("attended", exclude_if=lambda kind: kind == "attended")
    skip_list: tuple[str, ...] | None = Field(None, exclude_if=lambda words: words is None)

    @property
    def markers(self) -> int:
        """[Q] and [D]."""
        return 2

    def query_framing(self, vocabulary: Vocabulary) -> QueryFraming:
        """Return the framing of queries, with their marker and prompt, filled up with [MASK]."""
        prompt = self.prompt_of("query", vocabulary)
        return QueryFraming(
            vocabulary,
            self.max_query_tokens,
            self.kept_of_query,
            prompt,
            marker=vocabulary.vocab_size,
            expansion=self.expansion,
        )

    def document_framing(self, vocabulary: Vocabulary) -> DocumentFraming:
        """Return the framing of documents, with their marker and prompt."""
        prompt = self.prompt_of("document", vocabulary)
        return DocumentFraming(
            vocabulary,
            self.max_document_tokens,
            prompt=prompt,
            marker=vocabulary.vocab_size + 1,
            skipped=self.skipped(vocabulary),
        )

    def skipped(self, vocabulary: Vocabulary) -> tuple[int, ...]:
        """Return the ids of the tokens of documents that have no vector; a word that is no token is passed over."""
        if self.skip_list is None:
            return vocabulary.punctuation
        ids = cast(Spelled, vocabulary).vocabulary() if self.skip_list else {}
        return tuple(ids[word] for word in self.skip_list if word in ids)

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> DualEncoderBatcher:
        """Build the batcher of queries and documents; raise ValueError where the vocabulary has no [MASK]."""
        if self.expansion != "none":
            require_roles(vocabulary, "mask")
        return super().batcher(vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> Colbert:
        """Build the model around a trunk; raise ValueError where it is causal."""
        return Colbert(trunk, self)


class Spelled(Protocol):
    """A vocabulary whose tokens' names are known."""

    def vocabulary(self) -> dict[str, int]:
        """Return the id of every token."""


@dataclass(frozen=True, kw_only=True)
class MarkedFraming(Framing):
    """Texts become `[CLS] marker text [SEP]`, with a prompt before the text; `max_tokens` counts all of them."""

    marker: int  # a token unknown to the tokenizer: its embedding row comes after the tokenizer's

    @property
    def room(self) -> int:
        """The maximum number of text tokens in an input."""
        return super().room - 1

    def row(self, text: np.ndarray) -> np.ndarray:
        """Return the unpadded input of a text, int64."""
        return np.insert(super().row(text), len(self.vocabulary.text_frame[0]), self.marker)


@dataclass(frozen=True, kw_only=True)
class QueryFraming(MarkedFraming):
    """Queries are filled up with [MASK] to `max_tokens`: "query augmentation" (section 3.2).

    These [MASK]s are ordinary tokens, as in the paper, where "this padded sequence of input tokens" goes into BERT. In
    the released code the attention mask covers only the text (unless `attend_to_mask_tokens` is set): the [MASK]s
    attend to the text, but nothing attends to them. This is the expansion "unattended"; "none" leaves them out.
    """

    expansion: Literal["attended", "unattended", "none"] = "attended"

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make `ids` int64 and `mask` bool, both [B, max_tokens]; for unattended [MASK]s also `kept` bool, all true.

        The mask is true at what is attended to. Without [MASK]s, the width is that of the longest query.
        """
        if self.expansion == "none":
            return super().arrays(texts)
        rows = [self.row(text) for text in texts]
        ids = np.full((len(texts), self.max_tokens), self.vocabulary.mask, dtype=np.int64)
        for filled, row in zip(ids, rows, strict=True):
            filled[: len(row)] = row
        every = np.ones(ids.shape, dtype=bool)
        if self.expansion == "attended":
            return {"ids": ids, "mask": every}
        lengths = np.array([len(row) for row in rows])
        return {"ids": ids, "mask": np.arange(self.max_tokens) < lengths[:, None], "kept": every}


@dataclass(frozen=True, kw_only=True)
class DocumentFraming(MarkedFraming):
    """Documents, of which some tokens, such as punctuation, are encoded but have no vector."""

    skipped: tuple[int, ...]

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make `ids` int64, `mask` bool and `kept` bool, true where there is a vector; all [B, T]."""
        arrays = super().arrays(texts)
        kept = arrays["mask"] & ~np.isin(arrays["ids"], self.skipped)
        return {**arrays, "kept": kept}


class Colbert(DualEncoder):
    """One shared encoder or two, and a linear layer `projection.` for both sides."""

    keys: ColbertConfig
    kind = "multi_vector"

    def __init__(self, trunk: PreTrainedModel, keys: ColbertConfig) -> None:
        """Put the model together; the trunk's token embedding has the rows of the markers.

        Raises:
            ValueError: the trunk is causal; the vectors of [CLS] and the markers would be the same for every text.
        """
        super().__init__(trunk, keys)
        require_bidirectional(trunk)
        self.projection = nn.Linear(trunk.config.hidden_size, keys.dimension, bias=False)

    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        """Return a vector of length 1 for each token."""
        return self._project(encode_texts(tower, ids, mask))

    def _project(self, states: Tensor) -> Tensor:
        vectors = self.projection(states.to(next(self.projection.parameters()).dtype))
        return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)

    def embed_queries(self, ids: Tensor, mask: Tensor, **own: Tensor) -> Vectors:
        """Return the vectors of queries; `query_framing` makes the arguments."""
        if self.keys.expansion != "unattended":
            return super().embed_queries(ids, mask, **own)
        return self.of_queries(self._project(encode_slots(self.trunk, ids, mask)), mask, **own)

    def _embed(self, queries: dict[str, Tensor], documents: dict[str, Tensor]) -> tuple[Vectors, Vectors]:
        if self.keys.expansion != "unattended":
            return super()._embed(queries, documents)
        return self.embed_queries(**queries), self.embed_documents(**documents)

    def of_queries(self, encoded: Tensor, mask: Tensor, kept: Tensor | None = None) -> Vectors:
        """Return the vectors of all tokens, or of those in `kept`, bool [B, T]."""
        return Vectors(encoded, mask if kept is None else kept)

    def of_documents(self, encoded: Tensor, mask: Tensor, kept: Tensor | None = None) -> Vectors:
        """Return the vectors of the tokens in `kept`, bool [B, T]; by default of all tokens."""
        return Vectors(encoded, mask if kept is None else kept)

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        """Sum, over a query's vectors, the largest inner product with one of the document's vectors, [Q, D]."""
        return score_in_blocks(_max_sim, queries, documents)


def _max_sim(queries: Vectors, documents: Vectors) -> Tensor:
    products = queries.vectors.flatten(0, 1) @ documents.vectors.flatten(0, 1).T
    products = products.view(*queries.mask.shape, *documents.mask.shape)  # [Q, m, D, k]
    # max, unlike amax, keeps only the places for the backward pass, not the products
    best = products.masked_fill_(~documents.mask, -torch.inf).max(dim=3).values
    return best.masked_fill(~queries.mask[:, :, None], 0.0).sum(dim=1)
