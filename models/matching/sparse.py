"""Learned sparse retrieval: a text is a weight for each term of the vocabulary (SPLADE, TILDEv2, uniCOIL).

    text --> encoder --> h_1 ... h_N --> logits of the masked LM --> w_j = max_i log(1 + relu(logit_ij)) --+
                                                                                                           +--> <q, d>
    query --> its tokens, weights 1 or of a table ---------------------------------------------------------+

A side has weights for the whole vocabulary (SPLADE; Formal et al., 2021), for its own tokens alone (SPLADE-lexical's
queries, TILDEv2's documents), or, without an encoder, a query's tokens count 1 each (SPLADE-doc, TILDEv2) or what a
table says (query_weights.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.framing import Framing
from deepsiam.models.causality import is_causal
from deepsiam.models.config import Section, Side
from deepsiam.models.encode import encode_texts
from deepsiam.models.interface import Vocabulary
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.shape import initialise, setting, shape_of
from deepsiam.models.layers.term_weights import TermPooling, own_vocabulary_weights, scatter_weights, vocabulary_weights
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderConfig
from deepsiam.models.matching.query_weights import IdfTable, LearnedTable
from deepsiam.models.matching.start_terms import FitsStart, StartTerms
from deepsiam.models.trunk import token_embedding
from deepsiam.models.vectors import Vectors, one_vector

SIDES = ("query", "document")
LARGE_PENALTY = 1000  # a regulariser above this means weights for most terms of the vocabulary: then 20,000 as a rule
RAISED = 1000.0  # added to logits of any size so that all are positive


class Penalty(Section):
    """The weights of the regularisers of one side's vectors."""

    l1: PositiveFloat | None = None  # of the sum of a text's weights
    flops: PositiveFloat | None = None  # of the sum over terms of (the step's mean weight)²


class Regularise(Section):
    """What keeps the vectors sparse."""

    query: Penalty = Penalty()
    document: Penalty = Penalty()
    ramp: int = Field(50_000, ge=0)  # the weights rise to these quadratically, over so many steps

    def terms(self) -> dict[str, float]:
        """Return the weight of each loss term."""
        penalties = [(side, getattr(self, side).model_dump(exclude_none=True)) for side in SIDES]
        return {f"{side}_{kind}": weight for side, penalty in penalties for kind, weight in penalty.items()}


class SparseConfig(StartTerms, DualEncoderConfig):
    """Fine-tuning of a sparse encoder."""

    folder_kind = "SparseEncoder"
    start_keys = ("pooling", *DualEncoderConfig.start_keys)

    name: Literal["sparse"]
    query: Literal["encoder", "own_tokens", "tokens", "idf", "table"] = "encoder"
    document: Literal["vocabulary", "own_tokens"] = "vocabulary"
    head: Literal["mlm", "new_mlm", "linear"] = "mlm"  # linear: h -> relu(w·h + b), the weight of the token at h
    pooling: TermPooling = "max"
    regularise: Regularise = Regularise()
    learn_temperature: Literal[False] = False  # it would scale the weights that are regularised
    max_query_tokens: int = Field(256, ge=3)
    max_document_tokens: int = Field(256, ge=3)

    @model_validator(mode="after")
    def _sides_have_what_they_need(self) -> SparseConfig:
        if self.head == "linear":
            for key, value in (("query", "encoder"), ("document", "vocabulary")):
                if getattr(self, key) == value:
                    raise ValueError(
                        f"method.head=linear weighs a text's own tokens alone: set method.{key}=own_tokens, not {value}"
                    )
        if self.start_terms and (self.head == "linear" or self.document == "own_tokens"):
            raise ValueError(
                "method.start_terms needs documents that have weights for the whole vocabulary: leave it out, or set "
                "method.head=mlm and method.document=vocabulary"
            )
        if not self.encodes_queries and self.towers == 2:
            raise ValueError(f"method.query={self.query} has no encoder: set method.towers=1")
        if not self.encodes_queries and self.query_prompt:
            raise ValueError(f"method.query_prompt: with method.query={self.query} no encoder reads it: leave it out")
        if self.query in ("tokens", "idf") and self.regularise.query != Penalty():
            raise ValueError(
                f"method.regularise.query: with method.query={self.query} no weight is learned: leave it out"
            )
        return self

    @property
    def encodes_queries(self) -> bool:
        """Whether an encoder reads queries."""
        return self.query in ("encoder", "own_tokens")

    @property
    def fits_start(self) -> bool:
        return super().fits_start or self.query == "idf"

    def regulariser_weights(self, step: int | None = None) -> dict[str, float]:
        ramp, weights = self.regularise.ramp, self.regularise.terms()
        if step is None or not ramp:
            return weights
        # the first step has a penalty already; sentence-transformers' SpladeLoss begins one step later
        share = min(1.0, (step + 1) / ramp) ** 2
        return {term: share * weight for term, weight in weights.items()}

    def remarks(self, losses: Mapping[str, float]) -> dict[str, str]:
        """Say where all weights of a side are 0, or hardly any is: both end learning."""
        remarks = {}
        for term in filter(losses.__contains__, self.regularise.terms()):
            side, value = term.split("_")[0], losses[term]
            if value == 0:
                key = f"method.regularise.{term.replace('_', '.')}"
                remarks[term] = f"every weight of every {side} is 0: lower {key}"
            elif value > LARGE_PENALTY and self.document == "vocabulary":
                remarks[term] = (
                    f"{term}: each {side} has weights for most terms of the vocabulary: set method.start_terms"
                )
        return remarks

    @property
    def spans_step(self) -> bool:
        # FLOPS is a function of the mean over all texts of the step
        return super().spans_step or any(term.endswith("flops") for term in self.regularise.terms())

    @property
    def input_lengths(self) -> dict[str, int]:
        lengths = super().input_lengths
        if not self.encodes_queries:
            del lengths["method.max_query_tokens"]
        return lengths

    @property
    def start_heads(self) -> str | None:
        return "lm_head." if self.head == "mlm" else None

    def query_framing(self, vocabulary: Vocabulary) -> Framing:
        if not self.encodes_queries:
            stop_words = vocabulary.stop_words if self.query == "tokens" else ()
            return TermFraming(vocabulary, self.max_query_tokens, self.kept_of_query, stop_words=tuple(stop_words))
        prompt, own_tokens = self.prompt_of("query", vocabulary), self.query == "own_tokens"
        return SparseFraming(vocabulary, self.max_query_tokens, self.kept_of_query, prompt, own_tokens=own_tokens)

    def document_framing(self, vocabulary: Vocabulary) -> SparseFraming:
        prompt, own_tokens = self.prompt_of("document", vocabulary), self.document == "own_tokens"
        return SparseFraming(vocabulary, self.max_document_tokens, prompt=prompt, own_tokens=own_tokens)

    def model(self, trunk: PreTrainedModel) -> Sparse:
        return Sparse(trunk, self)


@dataclass(frozen=True)
class SparseFraming(Framing):
    """Texts with `special`, the ids of special tokens, int64 [B, S], which never have a weight.

    `before`, int64 [B, 1], is the number of tokens before a text: the tokenizer's and the prompt's.
    `terms`, int64 [B, T], are the tokens of a text that has weights for no others; as in sentence-transformers, a
    prompt's are among them.
    """

    own_tokens: bool = False

    def arrays(self, texts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        arrays = super().arrays(texts)
        special = np.tile(np.array(self.vocabulary.special, np.int64), (len(texts), 1))
        starts = np.full((len(texts), 1), len(self.before) + self.prompt_tokens)
        arrays |= {"special": special, "before": starts}
        return arrays | {"terms": arrays["ids"]} if self.own_tokens else arrays


@dataclass(frozen=True)
class TermFraming(SparseFraming):
    """A query's tokens without `stop_words`, special tokens and a frame; there may be none."""

    stop_words: tuple[int, ...] = ()

    @property
    def room(self) -> int:
        return self.max_tokens

    @cached_property
    def counts(self) -> np.ndarray:
        """Whether each token of the vocabulary counts, bool [V]."""
        counts = np.ones(self.vocabulary.vocab_size, bool)
        counts[list(self.stop_words)] = False
        return counts

    def cut(self, tokens: np.ndarray) -> np.ndarray:
        return super().cut(tokens[self.counts[tokens]])

    def row(self, text: np.ndarray) -> np.ndarray:
        return self.cut(text).astype(np.int64)


class TermHead(LmHead):
    """A masked LM's head whose logits become term weights."""

    def forward(  # type: ignore[override]
        self, hidden: Tensor, tower: PreTrainedModel, mask: Tensor, pooling: TermPooling, terms: Tensor | None
    ) -> Tensor:
        """Return the weights [B, V] of all terms, or of a text's own `terms`, from a tower's states [B, T, H]."""
        embedding = token_embedding(tower)  # inside this forward, where ZeRO-3 gathers it
        # padding may be zeros, for which a LayerNorm in half precision has no gradient
        hidden = self.transform(torch.where(mask[:, :, None], hidden, hidden[:, :1]))
        if terms is None:
            return vocabulary_weights(hidden, embedding, self.bias, mask, pooling)
        return own_vocabulary_weights(hidden, embedding, self.bias, mask, terms, pooling)


class Sparse(FitsStart, DualEncoder):
    """One shared encoder or two, and one head: `lm_head.` of a masked LM, or `token_weight.`, a linear layer.

    Queries without an encoder may have a `query_table.`
    """

    keys: SparseConfig
    kind = "sparse"

    def __init__(self, trunk: PreTrainedModel, keys: SparseConfig) -> None:
        super().__init__(trunk, keys)
        if keys.head == "linear":
            self.token_weight = nn.Linear(trunk.config.hidden_size, 1)
            initialise(self.token_weight, setting(trunk.config, "initializer_range", 0.02))
            nn.init.ones_(self.token_weight.bias)  # matching tokens count from the start; below 0 nothing is learned
        else:
            self.lm_head = TermHead(shape_of(trunk))
        if keys.query == "idf":
            self.query_table: IdfTable | LearnedTable = IdfTable(trunk.config.vocab_size)
        elif keys.query == "table":
            self.query_table = LearnedTable(trunk)

    def start_logits(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Tensor:
        """Return the largest logit of each term in documents, [D, V]."""
        bias, tower = self.lm_head.bias.clone(), self.tower("document")
        self.lm_head.bias.add_(RAISED)  # so that relu, inside the head, keeps the logits below 0 too
        states = self.encode(tower, ids, mask)
        raised = self.lm_head(states, tower, _text_mask(tower, mask, framed.get("before")), "max", None)
        self.lm_head.bias.copy_(bias)
        # expm1 undoes log(1 + x)
        return _without(framed.get("special"), raised.expm1()).vectors[:, 0] - RAISED

    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        return encode_texts(tower, ids, mask)

    @property
    def encodes_alike(self) -> bool:
        return super().encodes_alike and self.keys.encodes_queries

    def embed_queries(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Vectors:
        """Return the term weights of queries, fp32 [Q, 1, V]; a query of stop words alone has none."""
        if self.keys.encodes_queries:
            return super().embed_queries(ids, mask, **framed)
        weights = mask if self.keys.query == "tokens" else self.query_table(ids, self.trunk)
        weights = weights.to(torch.promote_types(self.trunk.dtype, torch.float32))
        pooling: TermPooling = "sum" if self.keys.query == "tokens" else "max"  # of a token that a query repeats
        return _without(framed["special"], scatter_weights(weights, mask, ids, self.trunk.config.vocab_size, pooling))

    def vectors(
        self,
        side: Side,
        encoded: Tensor,
        mask: Tensor,
        special: Tensor | None = None,
        before: Tensor | None = None,
        terms: Tensor | None = None,
    ) -> Vectors:
        """Return the term weights of texts, fp32 [B, 1, V]; `SparseFraming` makes `special`, `before` and `terms`."""
        tower = self.tower(side)
        mask = _text_mask(tower, mask, before)
        if self.keys.head != "linear":
            return _without(special, self.lm_head(encoded, tower, mask, self.keys.pooling, terms))
        assert terms is not None
        logits = self.token_weight(encoded.to(next(self.token_weight.parameters()).dtype))[:, :, 0]
        weights = logits.to(torch.promote_types(logits.dtype, torch.float32)).relu()
        return _without(special, scatter_weights(weights, mask, terms, tower.config.vocab_size, self.keys.pooling))

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        return queries.vectors[:, 0] @ documents.vectors[:, 0].T

    def step_sums(self, queries: Vectors, documents: Vectors) -> dict[str, Tensor]:
        """Sum each term's weight over the texts of a side, and in a last column count them: fp32 [V + 1]."""
        vectors = {"query": queries.vectors, "document": documents.vectors}
        sides = [side for side in SIDES if getattr(self.keys.regularise, side).flops]
        return {side: F.pad(vectors[side][:, 0], (0, 1), value=1.0).sum(dim=0) for side in sides}

    def regularisers(self, queries: Vectors, documents: Vectors, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return L1 and FLOPS, each summed over these texts.

        FLOPS is SUM_j m_j², m the mean of all N texts of the step. These texts' share of N · FLOPS is <their sum, m>.
        The mean is a constant here, so its gradient would be half of what it is: m · (their sum), not 2m.
        """
        vectors, terms = {"query": queries.vectors, "document": documents.vectors}, {}
        for term in self.keys.regularise.terms():
            side, kind = term.split("_")
            weights = vectors[side][:, 0]
            if kind == "l1":
                terms[term] = weights.sum()
            else:
                share = weights.sum(dim=0) @ (sums[side][:-1] / sums[side][-1])
                terms[term] = 2 * share - share.detach()  # the value of the share, and twice its gradient
        return terms


def _text_mask(tower: PreTrainedModel, mask: Tensor, prefix_lengths: Tensor | None) -> Tensor:
    """Leave out the tokens before a text where they are in the same state in every text, and would win many terms."""
    if prefix_lengths is None or not is_causal(tower):
        return mask
    return mask & (torch.arange(mask.shape[1], device=mask.device) >= prefix_lengths)


def _without(special: Tensor | None, weights: Tensor) -> Vectors:
    # [CLS] and [SEP] are in every text: as terms they would tell nothing apart
    return one_vector(weights if special is None else weights.scatter(1, special, 0.0))
