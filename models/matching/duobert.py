"""duoBERT (Nogueira et al., 2019): a query and two documents read together, for which of the two is more relevant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.batching.framing import DuelFraming, Framing
from deepsiam.models.batching.packing import text_tokens
from deepsiam.models.interface import MicroBatch, Vocabulary
from deepsiam.models.matching.batcher import ExampleBatcher
from deepsiam.models.matching.config import NEED_OF_NEGATIVES, MatchingConfig
from deepsiam.models.matching.joint_encoder import JointEncoder, JointPooling
from deepsiam.models.trunk import widen_token_types

TYPES = 3  # the query's, the first document's, the second's


class DuobertConfig(MatchingConfig):
    """The keys of a model that compares two documents; the negatives of a query are its own."""

    name: Literal["duobert"]
    loss: Literal["binary"] = "binary"
    pooling: JointPooling = "cls"
    max_duel_tokens: int = Field(512, ge=8)  # each document gets half of what the query leaves

    @model_validator(mode="after")
    def _has_negatives(self) -> DuobertConfig:
        if not self.own_negatives:
            raise ValueError(f"method.name=duobert {NEED_OF_NEGATIVES}")
        return self

    @property
    def input_lengths(self) -> dict[str, int]:
        """The duel, whose three texts share one [CLS]."""
        duel = self.max_query_tokens + 2 * (self.max_document_tokens - 1)
        if self.max_duel_tokens < duel:
            return {"method.max_duel_tokens": self.max_duel_tokens}
        return {"method.max_query_tokens + 2 * (method.max_document_tokens - 1)": duel}

    def document_framing(self, vocabulary: Vocabulary) -> Framing:
        # as much of a document as is read beside the shortest query
        return Framing(vocabulary, min(self.max_document_tokens, (self.max_duel_tokens - 2) // 2 + 1))

    def duel_framing(self, vocabulary: Vocabulary) -> DuelFraming:
        """How a query and two documents become the arguments of `score_duels`."""
        (max_tokens,) = self.input_lengths.values()
        return DuelFraming(self.query_framing(vocabulary), self.document_framing(vocabulary), max_tokens)

    def check_frame(self, vocabulary: Vocabulary) -> None:
        super().check_frame(vocabulary)
        framing, (key,) = self.duel_framing(vocabulary), self.input_lengths
        if framing.room < 1:
            raise ValueError(
                f"{key}={framing.max_tokens} leaves no room for two documents beside a query of "
                f"method.max_query_tokens={self.max_query_tokens} and {framing.frame} special tokens: set more"
            )

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> DuelBatcher:
        return DuelBatcher(self, vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> Duobert:
        return Duobert(trunk, self)


class DuelBatcher(ExampleBatcher[DuobertConfig]):
    """Examples -> D duels of a relevant document and a negative of its query, each in both orders.

    `duel_ids` int64, `duel_mask` bool and `duel_types` int64, as the framing makes them: first all duels that the
    relevant document begins, then the same with the other order. `labels` fp32 [D]: 1 where it begins, else 0.
    """

    def micro_batch(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each query's negatives with its own rng; frame and pad the duels."""
        choices, tokens = self.choose(examples, rngs), self.candidates.corpus.tokens
        duels = [
            (example.query, tokens(relevant), tokens(negative))
            for example, (relevant, *negatives) in zip(examples, choices, strict=True)
            for negative in negatives
        ]
        ordered = [*duels, *((query, second, first) for query, first, second in duels)]
        framed = self.keys.duel_framing(self.vocabulary).arrays(*map(list, zip(*ordered, strict=True)))
        arrays = {f"duel_{name}": array for name, array in framed.items()}
        labels = np.repeat(np.array([1, 0], np.float32), len(duels))
        tokens_read = text_tokens([framed["ids"]], self.vocabulary)
        return MicroBatch({**arrays, "labels": labels}, {"binary": len(ordered)}, tokens_read)


class Duobert(JointEncoder):
    """A trunk with three token types, if it has types, and a head on the pooled state of a duel; it can only re-rank.

    The third type of a trunk with two starts as the second.
    """

    kind = "duels"

    def __init__(self, trunk: PreTrainedModel, keys: DuobertConfig) -> None:
        widen_token_types(trunk, TYPES)  # before the base looks how many types there are
        super().__init__(trunk, keys.pooling, TYPES)
        self.keys = keys

    def score_duels(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Return the logits, fp32 [D], of the first document being more relevant than the second.

        `DuelFraming` makes the arguments.
        """
        return self.outputs(ids, mask, types)[:, 0]

    def forward(self, duel_ids: Tensor, duel_mask: Tensor, duel_types: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The arrays of `DuelBatcher` as tensors -> {"binary": the sum over its duels}."""
        logits = self.score_duels(duel_ids, duel_mask, duel_types)
        return {"binary": F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")}
