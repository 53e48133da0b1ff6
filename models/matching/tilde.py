"""TILDE (Zhuang and Zuccon, 2021): how likely a document's terms are, given a query, and the other way round.

    [D] document --> encoder --> h_0 --> logits of the masked LM --> sigmoid --> P(t|d) for each term t
    [Q] query    --> the same ----------------------------------------------> P(t|q)

    score = α · SUM over the query's terms of log P(t|d)  +  (1 - α) · MEAN over the document's terms of log P(t|q)

Terms are whole words: not stop words (question words are no stop words here), pieces of words, or punctuation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.batching.framing import Framing, MarkedFraming, side_arrays
from deepsiam.models.encode import encode, in_one_run, unpadding_kernel
from deepsiam.models.interface import Vocabulary
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.shape import shape_of
from deepsiam.models.matching.batcher import CandidateBatcher
from deepsiam.models.matching.config import Losses, MatchingConfig
from deepsiam.models.matching.start_terms import FitsStart, StartTerms
from deepsiam.models.trunk import Encoder, require_bidirectional
from deepsiam.models.vectors import Vectors, one_vector

Loss = Literal["query_likelihood", "document_likelihood"]
SIDES = ("query", "document")
OTHER_SIDE = dict(zip(SIDES, reversed(SIDES), strict=True))


class TildeConfig(StartTerms, MatchingConfig):
    """The keys of TILDE; a query is compared with its relevant document alone."""

    markers = 2  # one of queries and one of documents, in the place of [CLS]

    name: Literal["tilde"]
    loss: Losses[Loss] = Field({"query_likelihood": 1.0, "document_likelihood": 1.0}, validate_default=True)
    alpha: float = Field(0.5, ge=0, le=1)  # the weight of the query's likelihood in a score; with 1 no query is encoded

    @model_validator(mode="after")
    def _loss_suits_ranking(self) -> TildeConfig:
        if self.own_negatives:
            raise ValueError(
                "method.name=tilde learns from relevant documents alone: leave out method.hard_negatives and "
                "method.negatives_per_query, or set them to 0"
            )
        for loss, share in (("query_likelihood", self.alpha), ("document_likelihood", 1 - self.alpha)):
            if share and loss not in self.losses:
                raise ValueError(f"method.alpha={self.alpha:g} ranks by the {loss}, which method.loss does not train")
        return self

    @property
    def start_heads(self) -> str | None:
        return "lm_head."

    def query_framing(self, vocabulary: Vocabulary) -> Framing:
        arguments = (vocabulary, self.max_query_tokens, self.kept_of_query)
        return MarkedFraming(*arguments, marker=vocabulary.vocab_size, replaces_cls=True)

    def document_framing(self, vocabulary: Vocabulary) -> Framing:
        marker = vocabulary.vocab_size + 1
        return MarkedFraming(vocabulary, self.max_document_tokens, marker=marker, replaces_cls=True)

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> TildeBatcher:
        return TildeBatcher(self, vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> Tilde:
        return Tilde(trunk, self)


def terms_in(vocabulary: Vocabulary) -> np.ndarray:
    """Return which tokens are terms, bool [V]: whole words that are no stop words."""
    terms = np.zeros(vocabulary.vocab_size, bool)
    terms[list(vocabulary.words)] = True
    terms[list(vocabulary.stop_words)] = False
    return terms


class TildeBatcher(CandidateBatcher[TildeConfig]):
    """Examples -> queries and documents, as their framings make them, and the terms that each side makes likely.

    terms_of_query, terms_of_document      int64 [Q, n], distinct, padded with [PAD]
    terms                                  bool [V]: which tokens are terms
    """

    def __init__(self, keys: TildeConfig, vocabulary: Vocabulary, candidates: Candidates) -> None:
        super().__init__(keys, vocabulary, candidates)
        self.terms = terms_in(vocabulary)
        self.framings = keys.framings(vocabulary)

    def arrays(
        self, examples: Sequence[Example], documents: Sequence[int], queries: Sequence[int]
    ) -> dict[str, np.ndarray]:
        corpus = self.candidates.corpus
        texts = {"query": [e.query for e in examples], "document": [corpus.tokens(i) for i in documents]}
        arrays = {"terms": self.terms, **side_arrays(self.framings, texts)}
        for side, framing in self.framings.items():
            tokens = [np.unique(framing.cut(text)) for text in texts[side]]  # of what the encoder reads of a text
            rows = [ids[self.terms[ids]] for ids in tokens]
            padded = np.full((len(rows), max(1, *map(len, rows))), self.vocabulary.pad, np.int64)
            for row, ids in zip(padded, rows, strict=True):
                row[: len(ids)] = ids
            arrays[f"terms_of_{side}"] = padded
        return arrays


class FirstHead(LmHead):
    """A masked LM's head on the first state of a text."""

    def forward(self, hidden: Tensor, embedding: nn.Module) -> Tensor:  # type: ignore[override]
        """Return the logits [B, V], fp32, of states [B, H].

        `embedding` is the table of tokens; its weight is taken inside a module's forward, where ZeRO-3 gathers it.
        """
        rows = embedding.get_parameter("weight")[: len(self.bias)]  # markers are no terms
        logits = F.linear(self.transform(hidden), rows, self.bias)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Tilde(FitsStart, Encoder):
    """One encoder for both sides, and a masked LM's head, `lm_head.`."""

    keys: TildeConfig
    kind = "likelihoods"
    temperature = 1.0

    def __init__(self, trunk: PreTrainedModel, keys: TildeConfig) -> None:
        super().__init__()
        require_bidirectional(trunk)
        self.trunk, self.keys = trunk, keys
        shape = shape_of(trunk)
        self.lm_head = FirstHead(replace(shape, vocab_size=shape.vocab_size - keys.markers))  # no bias for markers

    def start_logits(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Tensor:
        return self.logits(self._first_states(ids, mask))

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        """Return log P(t|text) for each term t, fp32 [B, 1, V], given texts int64 and bool [B, T]."""
        return one_vector(F.logsigmoid(self.logits(self._first_states(ids, mask))))

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of all terms, fp32 [B, V], given the first states of texts [B, H]."""
        logits: Tensor = self.lm_head(states, self.trunk.get_input_embeddings())
        return logits

    def forward(self, *, terms: Tensor, **arrays: Tensor) -> dict[str, Tensor]:
        """The arrays of `TildeBatcher` as tensors -> {loss: the sum over its texts}."""
        losses = {}
        states = self._states_of_both(arrays)
        for loss in self.keys.losses:
            side = loss.removesuffix("_likelihood")  # whose terms the other side's state predicts
            losses[loss] = likelihood_loss(self.logits(states[OTHER_SIDE[side]]), arrays[f"terms_of_{side}"], terms)
        return losses

    def _states_of_both(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the first states of the sides that the losses need, in one run where padding is not computed."""
        sides = [side for side in SIDES if f"{OTHER_SIDE[side]}_likelihood" in self.keys.losses]
        texts = [(arrays[f"{side}_ids"], arrays[f"{side}_mask"]) for side in sides]
        if unpadding_kernel(self.trunk, texts[0][1].device) is None:
            states = [self._first_states(*text) for text in texts]
        else:
            states = in_one_run(self._first_states, *texts)
        return dict(zip(sides, states, strict=True))

    def _first_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        return encode(self.trunk, ids, mask)[:, 0]


def likelihood_loss(logits: Tensor, present: Tensor, terms: Tensor) -> Tensor:
    """Sum the binary cross-entropy of every term of the vocabulary: is it in the other text? (section 3.2).

    `present`, int64 [B, n], are the distinct terms of each one's other text, padded with what is no term; `terms`,
    bool [V], tells which tokens are terms.
    """
    # -log(1 - P) = softplus(x), and -log P = softplus(x) - x: no [B, V] of labels is needed
    return (F.softplus(logits) * terms).sum() - (logits.gather(1, present) * terms[present]).sum()
