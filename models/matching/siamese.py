"""The Siamese network: queries and documents compared by one vector each (SEED, eq. 1; DPR; RepBERT; ANCE)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.framing import ChunkFraming, Framing
from deepsiam.models.config import OrRegistered, Side, unhashed
from deepsiam.models.encode import as_rows, encode, encode_texts, insert_special_tokens
from deepsiam.models.interface import Vocabulary
from deepsiam.models.layers.pooling import Pooling, pool
from deepsiam.models.layers.ranking_losses import LOSSES
from deepsiam.models.layers.shape import initialise, setting
from deepsiam.models.layers.vector_losses import BATCH_KL, VECTOR_LOSSES
from deepsiam.models.matching.config import Losses
from deepsiam.models.matching.dual_encoder import IN_BATCH, DualEncoder, DualEncoderConfig
from deepsiam.models.matching.relevance import Sides, allowed_columns
from deepsiam.models.trunk import require_bidirectional
from deepsiam.models.vectors import Vectors, one_vector

Similarity = Literal["dot", "cosine"]
SPREAD = ("query_spread", "document_spread")
SiameseLoss = Annotated[
    Literal["softmax", "hinge", "binary", "kl", "margin_mse", "vectors", "vectors_mse", "batch_kl"],
    OrRegistered(LOSSES),
]
Dimensions = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class SiameseConfig(DualEncoderConfig):
    """Fine-tuning of an encoder that gives each text one vector."""

    folder_kind = "SentenceTransformer"
    start_keys = ("pooling", "similarity", "temperature", *DualEncoderConfig.start_keys, "prompt_in_pooling")

    name: Literal["siamese"]
    loss: Losses[SiameseLoss] = "softmax"  # type: ignore[assignment]  # more than a dual encoder's
    similarity: Similarity = "dot"
    pooling: Pooling = "cls"
    pooled_states: PositiveInt | None = None  # the m of pooling first_m
    prompt_in_pooling: bool = unhashed(True)  # whether [CLS] and the prompt count in pooling mean
    special_tokens: PositiveInt = 1  # [CLS] and the tokens that pre-training added after it (Cross-Thought)
    projection: PositiveInt | None = None  # the size of a linear layer and LayerNorm on the pooled state (ANCE)
    document_chunks: PositiveInt = 1  # chunks of max_document_tokens each; the best one counts (MaxP)
    # Matryoshka (Kusupati et al., 2022): a vector has as many numbers as the first; the loss is summed over its first n
    # for each n
    dimensions: Dimensions | None = unhashed(None)  # null: all, once
    both_directions: bool = unhashed(False)  # a document must find its query, too; each direction counts half
    same_side: bool = unhashed(False)  # a query is compared with other queries, too, and a document with documents
    # the weight of a term that spreads vectors out: the mean squared product of any two of a side (Zhang et al., 2017)
    spread: PositiveFloat | None = unhashed(None)
    # a linear layer from a vector to a teacher's, of this width, in training alone; null: the vectors are as wide
    teacher_width: PositiveInt | None = unhashed(None)

    @model_validator(mode="after")
    def _keys_suit_each_other(self) -> SiameseConfig:
        if self.special_tokens > 1 and self.pooling != "cls":
            raise ValueError(
                f"method.special_tokens={self.special_tokens} are pooled by their own states: set method.pooling=cls"
            )
        if (self.pooling == "first_m") != (self.pooled_states is not None):
            raise ValueError("method.pooled_states is the m of method.pooling=first_m: set both or neither")
        for key in ("max_query_tokens", "max_document_tokens"):
            if (self.pooled_states or 0) > getattr(self, key):
                raise ValueError(f"method.pooled_states={self.pooled_states} are more than method.{key}")
        if not self.prompt_in_pooling and self.pooling != "mean":
            raise ValueError(
                f"method.prompt_in_pooling=false is for method.pooling=mean, not {self.pooling}: leave it out"
            )
        if self.learns_vectors and self.document_chunks > 1:
            raise ValueError("method.document_chunks: a teacher has one vector for a document: set it to 1")
        if self.spread and (self.document_chunks > 1 or self.learn_temperature):
            raise ValueError(
                "method.spread compares texts by one vector each, as they are: set method.document_chunks=1 and "
                "method.learn_temperature=false"
            )
        if self.sides.has_query_columns and not (self.has_batch_negatives and "softmax" in self.losses):
            raise ValueError(
                "method.both_directions and method.same_side are for a softmax over the batch: leave them out, or set "
                "method.loss=softmax and method.negatives=micro_batch or step"
            )
        if self.sides.has_query_columns and (self.learns_vectors or self.spread or self.document_chunks > 1):
            raise ValueError(
                "method.both_directions and method.same_side compare texts by one vector each, and no side by itself: "
                "leave them out, or method.spread, method.document_chunks and the losses of a teacher's vectors"
            )
        numbers = self.dimensions or ()
        if any(number <= next_number for number, next_number in pairwise(numbers)):
            raise ValueError(f"method.dimensions={list(numbers)}: give each number once, the largest first")
        return self

    @property
    def sides(self) -> Sides:
        return Sides(self.both_directions, self.same_side)

    @property
    def added_tokens(self) -> int:
        return self.special_tokens - 1

    def regulariser_weights(self, step: int | None = None) -> dict[str, float]:
        return dict.fromkeys(SPREAD, self.spread) if self.spread else {}

    @property
    def spans_step(self) -> bool:
        return super().spans_step or self.spread is not None

    def terms(self, loss: str) -> list[str]:
        """The loss of each number of dimensions by itself: softmax_768, softmax_256."""
        return [f"{loss}_{number}" for number in self.dimensions] if self.dimensions else [loss]

    def query_framing(self, vocabulary: Vocabulary) -> Framing:
        return replace(super().query_framing(vocabulary), pools_prompt=self.prompt_in_pooling)

    def document_framing(self, vocabulary: Vocabulary) -> Framing:
        framing = super().document_framing(vocabulary)
        if self.document_chunks > 1:
            framing = ChunkFraming(
                vocabulary, self.max_document_tokens, prompt=framing.prompt, chunks=self.document_chunks
            )
        return replace(framing, pools_prompt=self.prompt_in_pooling)

    def model(self, trunk: PreTrainedModel) -> Siamese:
        return Siamese(trunk, self)


class Siamese(DualEncoder):
    """One shared encoder or two, and, with `projection`, one head `projection.` for both sides."""

    keys: SiameseConfig

    def __init__(self, trunk: PreTrainedModel, keys: SiameseConfig) -> None:
        super().__init__(trunk, keys)
        if keys.pooling in ("cls", "first_m"):
            require_bidirectional(trunk, "set method.pooling=last")
        pooled = trunk.config.hidden_size * keys.special_tokens  # Cross-Thought's embedding: their states, concatenated
        if keys.projection:
            self.projection = nn.Sequential(nn.Linear(pooled, keys.projection), nn.LayerNorm(keys.projection))
        full_width = keys.projection or pooled
        self.width = keys.dimensions[0] if keys.dimensions else full_width  # of a vector
        if self.width > full_width:
            raise ValueError(f"dimensions: {self.width} are more than a vector's {full_width}")
        if keys.teacher_width:
            self.teacher_head = nn.Linear(self.width, keys.teacher_width)
            initialise(self.teacher_head, setting(trunk.config, "initializer_range", 0.02))
        self.kind = "dense" if keys.document_chunks == 1 else "multi_vector"

    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        """Return one vector for each text or chunk, [B, H]; where its prompt does not count, the states [B, T, H]."""
        n = self.keys.special_tokens
        ids, mask = as_rows(ids, mask)
        if n > 1:
            return self._vector(encode(tower, *insert_special_tokens(tower, ids, mask, n - 1))[:, :n].flatten(1))
        states = encode_texts(tower, ids, mask)
        if not self.keys.prompt_in_pooling:
            return states
        return self._vector(pool(states, mask, self.keys.pooling, self.keys.pooled_states))

    def _vector(self, pooled: Tensor) -> Tensor:
        """Return the vectors of texts, of length 1 for cosine, from their pooled states, both [B, H]."""
        if self.keys.projection:
            # pooled states are fp32, a layer in a half-precision run is not
            pooled = self.projection(pooled.to(next(self.projection.parameters()).dtype))
        pooled = pooled[:, : self.width].to(torch.promote_types(pooled.dtype, torch.float32))
        return F.normalize(pooled, dim=-1) if self.keys.similarity == "cosine" else pooled

    def vectors(self, side: Side, encoded: Tensor, mask: Tensor, kept: Tensor | None = None) -> Vectors:
        """Return each text's vector, or those of its chunks, for mask [B, C, T].

        `kept`, bool [..., T], are the states that count in a mean, by default all.
        """
        if not self.keys.prompt_in_pooling:
            counted = (mask if kept is None else kept).flatten(0, -2)
            encoded = self._vector(pool(encoded, counted, self.keys.pooling))
        texts = one_vector(encoded)
        if mask.ndim == 2:
            return texts
        # an absent chunk is [CLS] alone; so may the first be, which is never absent, where a text is empty
        chunks = torch.cat([mask[:, :1, 0], mask[:, 1:, 1]], dim=1)
        return Vectors(texts.vectors.view(*mask.shape[:2], -1), chunks)

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        if documents.vectors.shape[1] == 1:
            return queries.vectors[:, 0] @ documents.vectors[:, 0].T
        scores = torch.einsum("qh,dch->qdc", queries.vectors[:, 0], documents.vectors)  # MaxP: the best chunk counts
        return scores.masked_fill(~documents.mask, -torch.inf).amax(dim=2)

    def cut(self, texts: Vectors, dimensions: int) -> Vectors:
        """Return the first numbers of vectors, [B, m, dimensions]; for cosine, a vector keeps its length.

        It is 1, but for queries that are divided by a learnt temperature.
        """
        shorter = texts.vectors[..., :dimensions]
        if self.keys.similarity == "cosine" and dimensions < texts.vectors.shape[-1]:
            length, cut_length = (torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (texts.vectors, shorter))
            shorter = shorter * (length / cut_length.clamp(min=1e-12))
        return texts._replace(vectors=shorter)

    def prefixes(self) -> tuple[int, ...]:
        """Return how many of the first numbers of a vector are compared, the largest first."""
        return self.keys.dimensions or (self.width,)

    def beside(
        self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor] | None:
        """Return each text's losses beside its teacher's vector, a number for each term; for `batch_kl` that vector."""
        if not self.keys.learns_vectors:
            return None
        by_side = []
        for texts, side in ((queries, "queries"), (documents, "documents")):
            teacher = arrays[f"teacher_{side}"].to(texts.vectors.dtype)
            numbers = [self._lessons(texts.vectors[:, 0], teacher)]
            by_side.append(torch.cat([*numbers, *([teacher] if BATCH_KL in self.keys.losses else [])], dim=1)[:, None])
        return by_side[0], by_side[1]

    def _lessons(self, vectors: Tensor, teacher: Tensor) -> Tensor:
        """Compute the terms of `VECTOR_LOSSES` for each text, [B, terms]; the vectors are [B, H] and [B, W]."""
        losses, columns = [loss for loss in self.keys.losses if loss in VECTOR_LOSSES], []
        for loss in losses:
            for i, number in enumerate(self.prefixes()):
                student = vectors[:, :number]
                if self.keys.teacher_width:
                    padded = F.pad(student, (0, self.width - number)).to(next(self.teacher_head.parameters()).dtype)
                    student = self.teacher_head(padded).to(vectors.dtype)
                width = number if i else None  # the whole vector learns the whole of the teacher's
                columns.append(VECTOR_LOSSES[loss](student[:, :width], teacher[:, :width]))
        return torch.stack(columns, dim=1) if columns else vectors[:, :0]

    @property
    def _vector_terms(self) -> list[str]:
        return [term for loss in self.keys.losses if loss in VECTOR_LOSSES for term in self.keys.terms(loss)]

    def _teacher(self, texts: Vectors) -> Vectors:
        """Return the teacher's vectors that `beside` put behind those of texts."""
        return texts._replace(vectors=texts.vectors[..., self.width + len(self._vector_terms) :].detach())

    def step_sums(self, queries: Vectors, documents: Vectors) -> dict[str, Tensor]:
        """Sum the outer products of the vectors of each side with themselves, and count them in the corner."""
        if not self.keys.spread:
            return {}
        sides = zip(SPREAD, (queries, documents), strict=True)
        with_ones = {term: F.pad(texts.vectors[:, 0, : self.width], (0, 1), value=1.0) for term, texts in sides}
        return {term: rows.T @ rows for term, rows in with_ones.items()}

    def regularisers(self, queries: Vectors, documents: Vectors, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the losses beside a teacher's vectors, and how alike a side's vectors are, each summed over texts.

        Of N texts of the step, the second is the sum over i and j != i of <v_i, v_j>² / (N - 1): with M, the sum of all
        v v', <v_i, M v_i> less |v_i|⁴. M is a constant here, so the gradient of the first part would be half of what it
        is.
        """
        losses = dict[str, Tensor]()
        if terms := self._vector_terms:
            by_text = torch.cat([texts.vectors[:, 0, self.width :][:, : len(terms)] for texts in (queries, documents)])
            losses |= zip(terms, by_text.sum(dim=0), strict=True)
        for term, texts in zip(SPREAD, (queries, documents), strict=True) if self.keys.spread else ():
            vectors, products, number = texts.vectors[:, 0, : self.width], sums[term][:-1, :-1], sums[term][-1, -1]
            with_all = ((vectors @ products) * vectors).sum()
            with_itself = vectors.square().sum(dim=1).square().sum()
            losses[term] = (2 * with_all - with_all.detach() - with_itself) / (number - 1).clamp(min=1)
        return losses

    def losses(self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not (self.keys.dimensions or self.keys.learns_vectors):
            return super().losses(queries, documents, arrays)
        if self.keys.losses.keys() <= VECTOR_LOSSES.keys():
            return {}
        if self.keys.losses.keys() & set(IN_BATCH) and self.keys.has_batch_negatives:
            arrays = {**arrays, "allowed": allowed_columns(arrays)}  # the same for each number: once
        taught = [self._teacher(texts) for texts in (queries, documents)] if BATCH_KL in self.keys.losses else []
        queries, documents = (
            texts._replace(vectors=texts.vectors[..., : self.width]) for texts in (queries, documents)
        )
        losses = dict[str, Tensor]()
        for i, number in enumerate(self.prefixes()):
            if taught:
                shorter = [self.cut(texts, number) if i else texts for texts in taught]
                arrays = {**arrays, "teacher_scores": self.score(*shorter)}
            by_loss = super().losses(self.cut(queries, number), self.cut(documents, number), arrays)
            losses |= {self.keys.terms(loss)[i]: value for loss, value in by_loss.items()}
        return losses
