"""The base of models that encode queries and documents separately: their batches, losses and towers."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import PositiveFloat, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import Candidates, Example, text_key
from deepsiam.models.batching.framing import Framing, arguments_of, side_arrays
from deepsiam.models.batching.taught import text_keys
from deepsiam.models.config import OrRegistered, Side, unhashed
from deepsiam.models.encode import as_rows, in_one_run, unpadding_kernel
from deepsiam.models.interface import MicroBatch, Prompt, Vocabulary
from deepsiam.models.layers import ranking_losses
from deepsiam.models.layers.ranking_losses import LOSSES
from deepsiam.models.layers.vector_losses import BATCH_KL, LEARN_VECTORS
from deepsiam.models.matching.batcher import CandidateBatcher
from deepsiam.models.matching.config import NEED_OF_NEGATIVES, Losses, MatchingConfig, compares_batch
from deepsiam.models.matching.relevance import Sides, allowed_columns, relevance
from deepsiam.models.trunk import Encoder
from deepsiam.models.vectors import Vectors

Loss = Annotated[Literal["softmax", "hinge", "binary", "kl", "margin_mse"], OrRegistered(LOSSES)]
Negatives = Literal["own", "micro_batch", "step"]
Kind = Literal["dense", "multi_vector", "sparse", "poly", "lists"]
# the losses that support in-batch negatives
IN_BATCH = {"softmax": ranking_losses.in_batch_softmax, "hinge": ranking_losses.in_batch_hinge}
REVERSE = "reverse"  # the term of a document that must find its query
SHARE_IGNORED = "ignored"  # a term of weight 0: the share of a query's negatives that `ignore_above` leaves out


class DualEncoderConfig(MatchingConfig):
    """The keys of a model that encodes queries and documents separately."""

    start_keys: ClassVar[tuple[str, ...]] = ("query_prompt", "document_prompt")

    loss: Losses[Loss] = "softmax"
    negatives: Negatives = "micro_batch"  # besides the query's own; "own" by default without softmax
    temperature: PositiveFloat = 1.0  # scores are divided by it
    learn_temperature: bool = False
    # in-batch negatives that score this much more than the positive, before the temperature, are left out as likely
    # relevant ones
    ignore_above: float | None = unhashed(None, ge=0)
    # a negative of the batch's softmax counts exp(hardness x its score before the temperature) times
    hardness: float = unhashed(0.0, ge=0)
    towers: Literal[1, 2] = 1  # 2: documents have a separate encoder, initialised with the same weights
    query_prompt: str = unhashed("")  # put before every query
    document_prompt: str = unhashed("")

    @model_validator(mode="before")
    @classmethod
    def _others_have_their_own(cls, values: Any) -> Any:
        loss = values.get("loss", "softmax") if isinstance(values, dict) else "softmax"
        return values if compares_batch(loss) else {"negatives": "own", **values}

    @model_validator(mode="after")
    def _negatives_suit_the_loss(self) -> DualEncoderConfig:
        if self.has_batch_negatives and not self.losses.keys() & {*IN_BATCH, BATCH_KL}:
            raise ValueError(
                f"method.negatives={self.negatives} is for method.loss={' or '.join(IN_BATCH)}, not "
                f"{' and '.join(self.losses)}: set method.negatives=own"
            )
        if self.negatives == "own" and "softmax" in self.losses and not self.has_own_negatives:
            raise ValueError(f"method.negatives=own {NEED_OF_NEGATIVES}")
        if self.negatives == "own" and BATCH_KL in self.losses:
            raise ValueError(
                f"method.loss={BATCH_KL} compares scores of the batch's documents: set method.negatives=micro_batch or "
                "step"
            )
        if self.ignore_above is not None and not self.has_batch_negatives:
            raise ValueError("method.ignore_above needs in-batch negatives, and method.negatives=own: set it to null")
        before_temperature = {"ignore_above": self.ignore_above is not None, "hardness": self.hardness > 0}
        for key, is_set in before_temperature.items():
            if is_set and self.learn_temperature:
                raise ValueError(
                    f"method.{key} is for scores before the temperature, which a learnt one is part of: set "
                    "method.learn_temperature=false"
                )
        if self.hardness and not (self.has_batch_negatives and "softmax" in self.losses):
            raise ValueError(
                "method.hardness weighs the negatives of a softmax over the batch: leave it out, or set "
                "method.negatives=micro_batch or step"
            )
        return self

    @property
    def weights(self) -> dict[str, float]:
        weights = super().weights
        if self.sides.both_directions:  # each direction counts half
            half = self.losses["softmax"] / 2
            weights |= {term: half for loss in ("softmax", REVERSE) for term in self.terms(loss)}
        ignored = self.terms(SHARE_IGNORED) if self.ignore_above is not None else []
        return {**weights, **dict.fromkeys(ignored, 0.0), **self.regulariser_weights()}

    def weights_at(self, step: int) -> dict[str, float]:
        return {**self.weights, **self.regulariser_weights(step)}

    def regulariser_weights(self, step: int | None = None) -> dict[str, float]:
        """Return the weight of each regulariser in the step after `step` finished ones; None: the final weights."""
        return {}

    @property
    def has_batch_negatives(self) -> bool:
        return self.negatives != "own"

    @property
    def sides(self) -> Sides:
        """What is compared beside queries with documents: by default nothing."""
        return Sides()

    def prompts(self) -> dict[Side, str]:
        texts: dict[Side, str] = {"query": self.query_prompt, "document": self.document_prompt}
        return {side: text for side, text in texts.items() if text}

    def prompt_of(self, side: Side, vocabulary: Vocabulary) -> Prompt | None:
        """Return a side's prompt, if it has one; raise ValueError where it leaves a text no room."""
        if side not in self.prompts():
            return None
        prompt, max_tokens = vocabulary.prompt(self.prompts()[side]), getattr(self, f"max_{side}_tokens")
        around = sum(map(len, vocabulary.text_frame)) + bool(self.markers)
        if len(prompt.ids) + around >= max_tokens:
            raise ValueError(
                f"{side}_prompt has {len(prompt.ids)} tokens, which leave a text no room: with the {around} around it "
                f"they are not fewer than max_{side}_tokens={max_tokens}: raise that, or shorten the prompt"
            )
        return prompt

    def query_framing(self, vocabulary: Vocabulary) -> Framing:
        return Framing(vocabulary, self.max_query_tokens, self.kept_of_query, self.prompt_of("query", vocabulary))

    def document_framing(self, vocabulary: Vocabulary) -> Framing:
        return Framing(vocabulary, self.max_document_tokens, prompt=self.prompt_of("document", vocabulary))

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> DualEncoderBatcher:
        return DualEncoderBatcher(self, vocabulary, candidates)


class DualEncoderBatcher(CandidateBatcher[DualEncoderConfig]):
    """Examples -> queries [Q, ...] and documents [D, ...], as their framings make them.

    The arrays of the framings have the prefixes `query_` and `document_`. Besides those of `CandidateBatcher`:

    allowed         bool [R, C], only for negatives of the micro-batch: false where the document has the same text as
                    the query or as a document relevant to it, except in the column of its own positive
    document_keys   int64 [C], and `relevant_keys`, int64 [R, r], of the texts that are no negatives of the query: equal
                    for equal texts; only for negatives of the step

    and, where a loss learns a teacher's vectors, `models.batching.taught.text_keys`.

    The R rows are the Q queries, and the C columns the D documents, unless the keys' `sides` compare more (see
    relevance.py): then `candidates` are [R, n] and `document_keys` [C, k].
    """

    def __init__(self, keys: DualEncoderConfig, vocabulary: Vocabulary, candidates: Candidates) -> None:
        super().__init__(keys, vocabulary, candidates)
        self.framings = keys.framings(vocabulary)

    def micro_batch(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        batch = super().micro_batch(examples, rngs)
        ignored = self.keys.terms(SHARE_IGNORED) if self.keys.ignore_above is not None else []
        reverse = self.keys.terms(REVERSE) if self.keys.sides.both_directions else []
        by_text = {  # the targets of a regulariser are the texts of its side
            term: len(batch.arrays["query_ids" if term.startswith("query") else "document_ids"])
            for term in self.keys.regulariser_weights()
        }
        sides, documents = self.keys.sides, len(batch.arrays["document_ids"])
        candidates = sides.candidates(batch.arrays["candidates"], documents)
        by_row = {**dict.fromkeys(ignored, len(candidates)), **dict.fromkeys(reverse, len(examples))}
        arrays = {**batch.arrays, "candidates": candidates}
        return batch._replace(arrays=arrays, counts={**batch.counts, **by_row, **by_text})

    def arrays(
        self, examples: Sequence[Example], documents: Sequence[int], queries: Sequence[int]
    ) -> dict[str, np.ndarray]:
        corpus = self.candidates.corpus
        texts = {"query": [e.query for e in examples], "document": [corpus.tokens(i) for i in documents]}
        arrays = side_arrays(self.framings, texts)
        if self.keys.learns_vectors:
            arrays |= text_keys([text_key(e.query) for e in examples], self.candidates.keys(documents))
        if not self.keys.has_batch_negatives:
            return arrays
        never, sides = [self.candidates.never_negative(e.query, e.relevant) for e in examples], self.keys.sides
        if sides.has_query_columns:  # a query is its own, also where a token of it is unknown
            never = [np.append(keys, text_key(e.query)) for keys, e in zip(never, examples, strict=True)]
        return arrays | relevance(self.candidates.keys(documents), never, sides, of_step=self.keys.compares_step)


class DualEncoder(Encoder):
    """One encoder for queries and documents, `trunk.`, or a second one for documents, `document_trunk.`.

    A subclass defines the vectors of a text and how they are compared. Neither `score` nor `losses` has parameters:
    all learnt parameters act on the vectors, so negatives can come from other micro-batches and ranks.
    """

    # how it ranks: by one vector per text; by several, each document by itself; by one of term weights; "poly": by
    # several vectors, which are no index, because a query's depend on the document; "lists": a score depends on the
    # other documents of its list
    kind: Kind

    def __init__(self, trunk: PreTrainedModel, keys: DualEncoderConfig) -> None:
        super().__init__()
        self.trunk, self.keys = trunk, keys
        if keys.towers == 2:
            self.document_trunk = copy.deepcopy(trunk)  # equal at first; only training tells the towers apart
        if keys.learn_temperature:
            # a vector of one number: DeepSpeed cannot shard a scalar
            self.log_temperature = torch.nn.Parameter(torch.tensor([math.log(keys.temperature)]))

    def tower(self, side: Side) -> PreTrainedModel:
        """Return the encoder of a side."""
        return self.document_trunk if side == "document" and self.keys.towers == 2 else self.trunk

    @property
    def encodes_alike(self) -> bool:
        """Whether both sides go through `encode` and one tower, so that one run can serve both."""
        return self.keys.towers == 1

    @property
    def temperature(self) -> float:
        """What scores are divided by in the losses: the learnt temperature, or that of the recipe."""
        return float(self.log_temperature.detach().exp()) if self.keys.learn_temperature else self.keys.temperature

    @abstractmethod
    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        """Return what a tower makes of texts of either side, [B, ...]: with ids int64 and mask bool, [B, T]."""

    @abstractmethod
    def vectors(self, side: Side, encoded: Tensor, mask: Tensor) -> Vectors:
        """Return a side's vectors, [B, m, H], of encoded texts; arrays that only its framing makes are keywords too."""

    def embed_queries(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Vectors:
        return self.vectors("query", self.encode(self.tower("query"), ids, mask), mask, **framed)

    def embed_documents(self, ids: Tensor, mask: Tensor, **framed: Tensor) -> Vectors:
        return self.vectors("document", self.encode(self.tower("document"), ids, mask), mask, **framed)

    @abstractmethod
    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        """Score every document for every query, fp32 [Q, D], before the temperature, without a loop over documents."""

    def forward(self, *, represent: bool = False, **arrays: Tensor) -> dict[str, Tensor]:
        """The arrays of `DualEncoderBatcher` as tensors -> {loss: the sum over its targets}.

        With `represent`, return the vectors that the losses need instead: of the rows `query_vectors` [R, m, H] and
        `query_real` bool [R, m], of the columns `document_vectors` [C, m, H] and `document_real` bool [C, m].
        """
        texts = self._embed(arguments_of("query_", arrays), arguments_of("document_", arrays))
        queries, documents = self.keys.sides.vectors(*texts)
        beside = self.beside(queries, documents, arrays)  # of the vectors alone: a temperature is of scores
        if self.keys.learn_temperature:  # on the vectors, so that GradCache, which keeps them alone, has its gradient
            queries = queries._replace(vectors=queries.vectors * (-self.log_temperature).exp())
        if beside:
            queries, documents = map(_joined, (queries, documents), beside)
        if represent:
            names = ("query_vectors", "query_real", "document_vectors", "document_real")
            return dict(zip(names, (*queries, *documents), strict=True))
        with torch.no_grad():  # as those of a step in several parts
            sums = self.step_sums(queries, documents)
        return {**self.losses(queries, documents, arrays), **self.regularisers(queries, documents, sums)}

    def _embed(self, queries: dict[str, Tensor], documents: dict[str, Tensor]) -> tuple[Vectors, Vectors]:
        """Embed both sides: in one run of a shared trunk, of half as many kernels, where it computes no padding."""
        if not self.encodes_alike or unpadding_kernel(self.trunk, queries["mask"].device) is None:
            return self.embed_queries(**queries), self.embed_documents(**documents)
        texts = [as_rows(queries.pop("ids"), queries["mask"]), as_rows(documents.pop("ids"), documents["mask"])]
        encoded_queries, encoded_documents = in_one_run(partial(self.encode, self.trunk), *texts)
        return (
            self.vectors("query", encoded_queries, **queries),
            self.vectors("document", encoded_documents, **documents),
        )

    def beside(
        self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor] | None:
        """Return numbers that `losses` and `regularisers` find behind each vector, [Q, m, k] and [D, m, k], or None.

        What they are computed from need not be there: the weights, and the arrays of other micro-batches.
        """
        return None

    def step_sums(self, queries: Vectors, documents: Vectors) -> dict[str, Tensor]:
        """Sum over texts what `regularisers` need of the whole step: none by default."""
        return {}

    def regularisers(self, queries: Vectors, documents: Vectors, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the loss terms of the vectors by themselves, each summed over these texts: none by default.

        `sums` are the `step_sums` of these texts and the others of the step, without a graph.
        """
        return {}

    def logits(self, scores: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
        """Divide scores [Q, D] by the temperature; return them, and what a softmax over the batch takes.

        `positives` int64 [Q] are columns; `hardness` weighs the others.
        """
        # a learnt temperature has scaled the queries in `forward`
        logits = scores if self.keys.learn_temperature else scores / self.keys.temperature
        if not self.keys.hardness:
            return logits, logits
        return logits, ranking_losses.weigh_negatives(logits, scores, positives, self.keys.hardness)

    def losses(self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the losses of queries against documents: {loss: the sum over its targets}.

        Args:
            queries: the vectors of the rows, R texts.
            documents: the vectors of the columns, C texts, from this micro-batch or from the whole step.
            arrays: the arrays of `DualEncoderBatcher` that are not texts; their columns refer to `documents`. For
                `batch_kl` also the `teacher_scores`, [Q, D].
        """
        scores = self.score(queries, documents)  # [R, C]
        candidates, losses = arrays["candidates"], dict[str, Tensor]()
        in_batch = [loss for loss in self.keys.losses if loss in IN_BATCH and self.keys.has_batch_negatives]
        mask = allowed_columns(arrays) if in_batch else None
        if mask is not None and self.keys.ignore_above is not None:
            margin = self.keys.ignore_above
            mask, losses[SHARE_IGNORED] = ranking_losses.without_higher(scores, candidates[:, 0], mask, margin)
        scores, softmax_logits = self.logits(scores, candidates[:, 0])
        if mask is not None and self.keys.sides.both_directions:  # rows of documents follow those of queries
            half = len(scores) // 2
            losses[REVERSE] = IN_BATCH["softmax"](softmax_logits[half:], candidates[half:, 0], mask[half:])
            scores, softmax_logits, candidates, mask = (x[:half] for x in (scores, softmax_logits, candidates, mask))
        if mask is not None:
            losses |= {
                loss: IN_BATCH[loss](softmax_logits if loss == "softmax" else scores, candidates[:, 0], mask)
                for loss in in_batch
            }
        if BATCH_KL in self.keys.losses:  # every document counts: a relevant one of another query is relevant to both
            every_document = torch.ones_like(scores, dtype=torch.bool)
            taught = arrays["teacher_scores"] / self.keys.temperature
            losses[BATCH_KL] = ranking_losses.distillation(scores, every_document, taught)
        if own_losses := [loss for loss in self.keys.losses if loss not in (*in_batch, *LEARN_VECTORS)]:
            candidate_scores = scores.gather(1, candidates.clamp(min=0))  # [Q, n]; at -1, no candidate, masked
            losses |= ranking_losses.candidates_losses(own_losses, candidate_scores, candidates >= 0, arrays)
        return losses


def _joined(texts: Vectors, beside: Tensor) -> Vectors:
    return texts._replace(vectors=torch.cat([texts.vectors, beside], dim=2))
