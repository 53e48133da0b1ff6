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
from deepsiam.models.batching.framing import MarkedFraming
from deepsiam.models.config import Side, unhashed
from deepsiam.models.encode import encode_slots, encode_texts
from deepsiam.models.interface import Vocabulary, require_roles
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderBatcher, DualEncoderConfig
from deepsiam.models.trunk import require_bidirectional
from deepsiam.models.vectors import Vectors, score_in_blocks


class ColbertConfig(DualEncoderConfig):
    """Fine-tuning of ColBERT. The paper's loss is softmax with `negatives: own`, one for each query."""

    folder_kind = "ColBERT"
    markers = 2  # [Q] and [D]
    start_keys = ("dimension", "expansion", "skip_list", "max_query_tokens", *DualEncoderConfig.start_keys)

    name: Literal["colbert"]
    dimension: PositiveInt = 128  # size of a vector
    max_query_tokens: int = Field(32, ge=4)  # every query is filled up to this length
    max_document_tokens: int = Field(180, ge=4)
    # whether queries are filled up with [MASK]s, and other tokens attend to these
    expansion: Literal["attended", "unattended", "none"] = unhashed("attended")
    skip_list: tuple[str, ...] | None = unhashed(None)  # a document's tokens without a vector; null: punctuation

    def query_framing(self, vocabulary: Vocabulary) -> QueryFraming:
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
        if self.expansion != "none":
            require_roles(vocabulary, "mask")
        return super().batcher(vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> Colbert:
        return Colbert(trunk, self)


class Spelled(Protocol):
    """A vocabulary whose tokens' names are known."""

    def vocabulary(self) -> dict[str, int]:
        """Return the id of every token."""


@dataclass(frozen=True, kw_only=True)
class QueryFraming(MarkedFraming):
    """Queries are filled up with [MASK] to `max_tokens`: "query augmentation" (section 3.2).

    These [MASK]s are ordinary tokens, as in the paper, where "this padded sequence of input tokens" goes into BERT. In
    the released code the attention mask covers only the text (unless `attend_to_mask_tokens` is set): the [MASK]s
    attend to the text, but nothing attends to them. This is the expansion "unattended"; "none" leaves them out.
    """

    expansion: Literal["attended", "unattended", "none"] = "attended"

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make `ids` int64 and `mask` bool, true at what is attended to; for unattended [MASK]s also `kept`, all true.

        They are [B, max_tokens]; without [MASK]s, the width is that of the longest query.
        """
        if self.expansion == "none":
            return super().arrays(texts)
        rows = [self.row(text) for text in texts]
        ids = np.full((len(texts), self.max_tokens), self.vocabulary.mask, dtype=np.int64)
        for augmented, row in zip(ids, rows, strict=True):
            augmented[: len(row)] = row
        all_slots = np.ones(ids.shape, dtype=bool)
        if self.expansion == "attended":
            return {"ids": ids, "mask": all_slots}
        lengths = np.array([len(row) for row in rows])
        return {"ids": ids, "mask": np.arange(self.max_tokens) < lengths[:, None], "kept": all_slots}


@dataclass(frozen=True, kw_only=True)
class DocumentFraming(MarkedFraming):
    """Documents, of which some tokens, such as punctuation, are encoded but have no vector."""

    skipped: tuple[int, ...]

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        arrays = super().arrays(texts)
        return {**arrays, "kept": arrays["mask"] & ~np.isin(arrays["ids"], self.skipped)}


class Colbert(DualEncoder):
    """One shared encoder or two, and a linear layer `projection.` for both sides."""

    keys: ColbertConfig
    kind = "multi_vector"

    def __init__(self, trunk: PreTrainedModel, keys: ColbertConfig) -> None:
        super().__init__(trunk, keys)
        require_bidirectional(trunk)  # the vectors of [CLS] and the markers would be the same for every text
        self.projection = nn.Linear(trunk.config.hidden_size, keys.dimension, bias=False)

    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        return self._project(encode_texts(tower, ids, mask))

    def _project(self, states: Tensor) -> Tensor:
        vectors = self.projection(states.to(next(self.projection.parameters()).dtype))
        return F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)

    @property
    def encodes_alike(self) -> bool:
        return super().encodes_alike and self.keys.expansion != "unattended"

    def embed_queries(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Vectors:
        if self.keys.expansion != "unattended":
            return super().embed_queries(ids, mask, **framed)
        # [MASK]s outside the mask have states too, which other ways to run the trunk leave out
        return self.vectors("query", self._project(encode_slots(self.trunk, ids, mask)), mask, **framed)

    def vectors(self, side: Side, encoded: Tensor, mask: Tensor, kept: Tensor | None = None) -> Vectors:
        return Vectors(encoded, mask if kept is None else kept)

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        return score_in_blocks(_max_sim, queries, documents)


def _max_sim(queries: Vectors, documents: Vectors) -> Tensor:
    # one matrix product for all pairs of vectors
    products = queries.vectors.flatten(0, 1) @ documents.vectors.flatten(0, 1).T
    products = products.view(*queries.mask.shape, *documents.mask.shape)  # [Q, m, D, k]
    # max, unlike amax, keeps only the places for the backward pass, not the products
    max_products = products.masked_fill_(~documents.mask, -torch.inf).max(dim=3).values
    return max_products.masked_fill(~queries.mask[:, :, None], 0.0).sum(dim=1)
