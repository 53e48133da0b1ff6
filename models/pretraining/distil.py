"""Learn a teacher's vectors of texts without labels (embedding distillation: LEAF, EmbeddingGemma, jina v5, Stella).

    a sentence      --> encoder --> vector --+--> layer --> the teacher's vector of the sentence
                                             +--> score matrix of the batch --> the teacher's score matrix
    what follows it --> encoder --> vector --+--> layer --> the teacher's vector of what follows

The encoder is the Siamese network of fine-tuning, which takes it on as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import text_key
from deepsiam.models.batching.framing import side_arrays
from deepsiam.models.batching.packing import spread, text_tokens
from deepsiam.models.batching.sentences import SentenceBatcher, passages
from deepsiam.models.batching.taught import text_keys
from deepsiam.models.config import unhashed
from deepsiam.models.interface import Batcher, MicroBatch, TokenDocument, Vocabulary
from deepsiam.models.layers.vector_losses import VECTOR_LOSSES
from deepsiam.models.matching.config import Losses, compares_batch
from deepsiam.models.matching.siamese import Dimensions, Siamese, SiameseConfig, Similarity
from deepsiam.models.pretraining.config import PretrainingConfig

Loss = Literal["vectors", "vectors_mse", "batch_kl"]


class DistilConfig(PretrainingConfig):
    """Pre-training on a teacher's vectors of texts."""

    size_keys = ("max_query_tokens", "max_document_tokens")
    start_keys = SiameseConfig.start_keys

    name: Literal["distil"]
    loss: Losses[Loss] = Field({"vectors": 1.0, "batch_kl": 1.0})
    negatives: Literal["own", "micro_batch", "step"] = "micro_batch"  # whose scores batch_kl compares; "own" without it
    passage_tokens: int = Field(256, ge=8)  # of a passage; pairs are not cut
    max_query_tokens: int = Field(64, ge=3)
    max_document_tokens: int = Field(256, ge=3)
    similarity: Similarity = "cosine"
    temperature: PositiveFloat = 0.05
    pooling: Literal["cls", "mean", "last"] = unhashed("cls")  # of a causal trunk by default `last`
    prompt_in_pooling: bool = True
    projection: PositiveInt | None = None
    dimensions: Dimensions | None = None
    teacher_width: PositiveInt | None = None
    query_prompt: str = ""
    document_prompt: str = ""

    @model_validator(mode="before")
    @classmethod
    def _vectors_alone_have_no_negatives(cls, values: Any) -> Any:
        is_alone = isinstance(values, dict) and "loss" in values and not compares_batch(values["loss"])
        return {"negatives": "own", **values} if is_alone else values

    @model_validator(mode="after")
    def _suits_the_network(self) -> DistilConfig:
        _ = self.ranking_config  # raises for keys that do not suit each other
        return self

    @property
    def ranking_config(self) -> SiameseConfig:
        """The keys of the network in fine-tuning; `pooling` is unset where the recipe leaves it to the trunk."""
        shared = type(self).model_fields.keys() & SiameseConfig.model_fields.keys() - {"name"}
        keys = {key: getattr(self, key) for key in shared if key != "pooling" or key in self.model_fields_set}
        return SiameseConfig(name="siamese", **keys)

    @property
    def weights(self) -> dict[str, float]:
        return self.ranking_config.weights

    @property
    def learns_vectors(self) -> bool:
        return True

    @property
    def input_lengths(self) -> dict[str, int]:
        return {f"method.{key}": getattr(self, key) for key in self.size_keys}

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return DistilBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Siamese:
        return self.ranking_config.model(trunk)


class TaughtPair(NamedTuple):
    """A text that is read as a query, and one that is read as a document: token ids."""

    query: np.ndarray
    document: np.ndarray


def taught_pairs(document: TokenDocument, passage_tokens: int) -> list[TaughtPair]:
    """Return the texts of a document: its two segments, or of each passage the first sentence and the others."""
    if len(document.segments) == 2:
        pair = TaughtPair(*document.segments)
        return [pair] if all(map(len, pair)) else []
    return [TaughtPair(first, np.concatenate(others)) for first, *others in passages(document, passage_tokens)]


class DistilBatcher(SentenceBatcher[TaughtPair]):
    """Documents -> passages -> queries [Q, ...] and documents [Q, ...], framed as the Siamese network frames them.

    Arrays: those of the framings, with the prefixes `query_` and `document_`; `candidates` int64 [Q, 1], of which each
    has its own number; those of `models.batching.taught.text_keys`; for negatives of the step also `document_keys`.
    """

    def __init__(self, keys: DistilConfig, vocabulary: Vocabulary) -> None:
        siamese = keys.ranking_config
        siamese.check_frame(vocabulary)
        self.keys, self.vocabulary = keys, vocabulary
        self.framings = siamese.framings(vocabulary)

    def numbered(self, documents: Sequence[TokenDocument]) -> list[tuple[int, TaughtPair]]:
        return spread(
            [(i, pair) for i, text in enumerate(documents) for pair in taught_pairs(text, self.keys.passage_tokens)]
        )

    def micro_batch(self, examples: Sequence[TaughtPair], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Frame and pad both sides; nothing is drawn."""
        texts = {"query": [pair.query for pair in examples], "document": [pair.document for pair in examples]}
        arrays = side_arrays(self.framings, texts)
        tokens = text_tokens([arrays["query_ids"], arrays["document_ids"]], self.vocabulary)
        taught = text_keys(*([text_key(text) for text in texts[side]] for side in ("query", "document")))
        arrays |= {"candidates": np.arange(len(examples))[:, None], **taught}
        if self.keys.compares_step:
            arrays["document_keys"] = taught["teacher_documents"]
        siamese = self.keys.ranking_config
        counts = {
            term: len(examples) * (1 + (loss in VECTOR_LOSSES))
            for loss in siamese.losses
            for term in siamese.terms(loss)
        }
        return MicroBatch(arrays, counts, tokens)
