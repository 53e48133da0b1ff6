"""The recipe keys of matching models: the lengths of their texts, their losses, and a query's candidates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Discriminator, Field, PositiveFloat, Tag, model_validator

from deepsiam.models.batching.candidates import Candidates, Example, Scale, Unit
from deepsiam.models.batching.framing import Framing, TextEnd
from deepsiam.models.config import MethodConfig, Section, unhashed
from deepsiam.models.interface import Batcher, Vocabulary
from deepsiam.models.layers.ranking_losses import LOSSES
from deepsiam.models.layers.vector_losses import BATCH_KL, LEARN_VECTORS
from deepsiam.models.trunk import TrunkModel

NEED_OF_NEGATIVES = (
    "needs a query's own negatives: set method.hard_negatives, which are given with the query, or "
    "method.negatives_per_query, which are drawn at random"
)

Loss = TypeVar("Loss")
LOSS_TAGS = ("name", "table")
# with a discriminator, pydantic's errors speak of the form that was given, not of both
Losses = Annotated[
    Annotated[Loss, Tag("name")] | Annotated[dict[Loss, PositiveFloat], Field(min_length=1), Tag("table")],
    Discriminator(lambda value: "table" if isinstance(value, dict) else "name"),
]
"""The `loss` of a recipe: the name of one, or a table of several with their weights."""


def compares_batch(loss: Any) -> bool:
    """Whether a `loss` of a recipe compares a query with the batch's documents unless `negatives` says otherwise."""
    return any(term in ("softmax", BATCH_KL) for term in (loss if isinstance(loss, dict) else [loss]))


class CandidatesConfig(Section):
    """Which of a query's scored candidates an example has, drawn anew in every epoch."""

    per_query: int = Field(ge=2)  # the positive and others
    keep: Literal["positive"] = "positive"  # is never left out


class MatchingConfig(MethodConfig):
    """The keys of a matching model: the lengths of its texts, and a query's candidates in training.

    Every matching model declares its `loss`: a Literal of the losses that it supports, or `Losses` of one.
    """

    loss: str | Mapping[Any, float]
    max_query_tokens: int = Field(64, ge=3)
    max_document_tokens: int = Field(512, ge=3)
    kept_of_query: TextEnd = "start"  # which end of a longer query is kept
    hard_negatives: int = Field(0, ge=0)  # drawn for each query from its group's own negatives
    negatives_per_query: int = Field(0, ge=0)  # drawn at random from the split's documents that are not relevant
    candidates: CandidatesConfig | None = unhashed(None)  # of a teacher's scores; null: all
    teacher_scale: Scale = unhashed("as_given")

    @model_validator(mode="after")
    def _loss_suits_its_candidates(self) -> MatchingConfig:
        for loss in self.losses if not self.has_own_negatives else ():
            has_none = loss in LOSSES and LOSSES[loss].needs_negatives and not self.has_batch_negatives
            if has_none or (loss == "binary" and self.unit == "positive"):
                raise ValueError(f"method.loss={loss} {NEED_OF_NEGATIVES}")
        if self.own_negatives and (self.taught or self.unit != "positive"):
            learner, supervision = (self.taught[0], "a teacher's scores") if self.taught else (self.loss, "the labels")
            instead = "; method.candidates draws from scored ones" if self.taught else ""
            raise ValueError(
                f"method.loss={learner} learns {supervision} that the data give, and draws no negatives: leave out "
                f"method.hard_negatives and method.negatives_per_query, or set them to 0{instead}"
            )
        learners = ", ".join(loss for loss in LOSSES.ours if LOSSES[loss].has_teacher)
        for key in () if self.taught else ("candidates", "teacher_scale"):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"method.{key} belongs to a teacher's scores, which method.loss={', '.join(self.losses)} does not "
                    f"learn: leave it out, or add one of the losses {learners}"
                )
        return self

    @property
    def losses(self) -> dict[str, float]:
        """The weight of each term that compares a query with documents, by its name."""
        return {self.loss: 1.0} if isinstance(self.loss, str) else dict(self.loss)

    @property
    def taught(self) -> list[str]:
        """The terms that learn a teacher's scores."""
        return [loss for loss in self.losses if loss in LOSSES and LOSSES[loss].has_teacher]

    def terms(self, loss: str) -> list[str]:
        """The loss terms that a loss makes: itself, unless the model computes it for several sizes of its vectors."""
        return [loss]

    @property
    def weights(self) -> dict[str, float]:
        return {term: weight for loss, weight in self.losses.items() for term in self.terms(loss)}

    @property
    def own_negatives(self) -> int:
        """How many negatives are drawn for each query, besides in-batch negatives."""
        return self.hard_negatives + self.negatives_per_query

    @property
    def learns_vectors(self) -> bool:
        return any(loss in LEARN_VECTORS for loss in self.losses)

    @property
    def has_own_negatives(self) -> bool:
        return bool(self.own_negatives or self.taught)

    @property
    def has_batch_negatives(self) -> bool:
        """Whether a query is compared with other queries' documents (in-batch negatives)."""
        return False

    @property
    def unit(self) -> Unit:
        """What an example is.

        Where a teacher's scores are learnt beside relevance, it is a relevant document with the scored candidates of
        its group that are not relevant.
        """
        if len(self.taught) == len(self.losses):
            return "group"
        labelled = "classes" in self.losses or (list(self.losses) == ["binary"] and not self.own_negatives)
        return "pair" if labelled else "positive"

    def longest_text(self, model: TrunkModel) -> int:
        return self.max_document_tokens

    @property
    def input_lengths(self) -> dict[str, int]:
        limits = {"max_query_tokens": self.max_query_tokens, "max_document_tokens": self.max_document_tokens}
        return {f"method.{key}": tokens + self.added_tokens for key, tokens in limits.items()}

    def choose(self, candidates: Candidates, example: Example, rng: np.random.Generator) -> list[int]:
        """Return the documents that an example's query is compared with; the positive, if it has one, comes first.

        Raises:
            ValueError: there are fewer documents to draw from than the recipe asks for.
        """
        if self.unit == "pair":
            return example.candidates.tolist()
        if self.taught:
            number = self.candidates.per_query if self.candidates else len(example.candidates)
            return candidates.choose_scored(example, number, rng, any_label=self.unit == "group")
        return candidates.choose(example, self.hard_negatives, self.negatives_per_query, rng)

    def query_framing(self, vocabulary: Vocabulary) -> Framing:
        """Return the framing of queries: how they become the arguments of `embed_queries`."""
        return Framing(vocabulary, self.max_query_tokens, self.kept_of_query)

    def document_framing(self, vocabulary: Vocabulary) -> Framing:
        """Return the framing of documents: how they become the arguments of `embed_documents`."""
        return Framing(vocabulary, self.max_document_tokens)

    def framings(self, vocabulary: Vocabulary) -> dict[str, Framing]:
        """Return the framing of each side."""
        return {"query": self.query_framing(vocabulary), "document": self.document_framing(vocabulary)}

    def check_frame(self, vocabulary: Vocabulary) -> None:
        """Raise ValueError where a length has no room for text beside what the tokenizer puts around one."""
        for side, framing in self.framings(vocabulary).items():
            if framing.room < 1:
                raise ValueError(
                    f"max_{side}_tokens: {framing.max_tokens} tokens have no room for text beside the "
                    f"{framing.max_tokens - framing.room} that the tokenizer puts around it: set more"
                )

    @abstractmethod
    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> Batcher:
        """Build the batcher of `models.batching.candidates.Example`s."""
