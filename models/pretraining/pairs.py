"""Contrastive pre-training on weak pairs (E5: Wang et al., 2022; GTE; nomic-embed): a query must find its document.

    query    --> encoder --> pooled state --+
                                            +--> dot or cosine / temperature --> softmax over the batch's documents
    document --> encoder --> pooled state --+

The network is one of fine-tuning, which takes it on as it is: by default the Siamese one, drawn here; ColBERT
(ColBERT-Zero: Chaffin et al., 2026) or a sparse one by `score`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    SerializationInfo,
    WithJsonSchema,
    field_serializer,
    model_validator,
)
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import hash_of, text_key
from deepsiam.models.batching.framing import side_arrays
from deepsiam.models.batching.packing import text_tokens
from deepsiam.models.config import unhashed
from deepsiam.models.interface import Batcher, MicroBatch, TokenDocument, Vocabulary
from deepsiam.models.matching.colbert import Colbert, ColbertConfig
from deepsiam.models.matching.dual_encoder import REVERSE, DualEncoder, DualEncoderConfig
from deepsiam.models.matching.relevance import relevance
from deepsiam.models.matching.siamese import Siamese, SiameseConfig, Similarity
from deepsiam.models.matching.sparse import Sparse, SparseConfig
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.vectors import Vectors

LOSSES = ("pairs", REVERSE)  # a query among documents, a document among queries
SIAMESE_KEYS = ("similarity", "pooling", "prompt_in_pooling", "both_directions", "same_side")
NAMES = {"enum": ["siamese", "colbert", "sparse"]}
Score = Annotated[
    Annotated[SiameseConfig | ColbertConfig | SparseConfig, Field(discriminator="name")],
    BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [NAMES, {"type": "object"}]}),  # the keys are those of fine-tuning, listed there
]


class PairsConfig(PretrainingConfig):
    """Contrastive pre-training on streamed pairs."""

    size_keys = ("max_query_tokens", "max_document_tokens")
    needs_pairs = True

    name: Literal["pairs"]
    # the network that scores: siamese, colbert or sparse, or its name with the keys that it has in fine-tuning
    score: Score = unhashed(SiameseConfig(name="siamese"), json_schema_extra={"default": "siamese"})
    max_query_tokens: int = Field(64, ge=3)
    max_document_tokens: int = Field(256, ge=3)
    similarity: Similarity = "dot"
    temperature: PositiveFloat = 1.0  # scores are divided by it
    negatives: Literal["micro_batch", "step"] = "micro_batch"
    both_directions: bool = False  # a document must find its query, too; each direction counts half
    same_side: bool = False  # a query is compared with other queries as well, and a document with other documents
    pooling: Literal["cls", "mean", "last"] = unhashed("cls")  # of a causal trunk by default `last`
    prompt_in_pooling: bool = True  # whether [CLS] and the prompt count in pooling mean
    query_prompt: str = ""
    document_prompt: str = ""

    @model_validator(mode="after")
    def _suits_the_network(self) -> PairsConfig:
        network = self.score
        losses = network.weights.keys() - network.regulariser_weights() - {REVERSE}
        if network.has_own_negatives or losses != {"softmax"}:
            raise ValueError(
                "method.score: a pair has one loss, over the batch's documents: leave out the losses, negatives, "
                "dimensions and ignore_above of fine-tuning"
            )
        for key in sorted(network.model_fields_set & self._shared_keys):
            raise ValueError(f"method.score.{key}: write it as method.{key}")
        for key in SIAMESE_KEYS if network.name != "siamese" else ():
            default = type(self).model_fields[key].default
            if getattr(self, key) != default:
                raise ValueError(
                    f"method.{key} is for method.score=siamese, not {network.name}: leave it out, or set it to "
                    f"{json.dumps(default)}"
                )
        _ = self.ranking_config  # raises for keys that do not suit each other
        return self

    @property
    def ranking_config(self) -> SiameseConfig | ColbertConfig | SparseConfig:
        """The keys of the network in fine-tuning; unset where the recipe leaves them to a default that both share."""
        network = type(self.score)
        keys = {key: getattr(self, key) for key in sorted(self._shared_keys)}
        defaults = {key: network.model_fields[key].default for key in keys}
        set_keys = {key: value for key, value in keys.items() if key in self.model_fields_set or value != defaults[key]}
        return network(**self.score.model_dump(exclude_unset=True), **set_keys)

    @property
    def _shared_keys(self) -> set[str]:
        """The keys of the network that are keys of the method, too."""
        shared = type(self).model_fields.keys() & type(self.score).model_fields.keys() - {"name"}
        return shared if self.score.name == "siamese" else shared - {*SIAMESE_KEYS}

    @field_serializer("score")
    def _without_shared_keys(self, score: DualEncoderConfig, info: SerializationInfo) -> dict[str, Any]:
        return score.model_dump(exclude=self._shared_keys, exclude_unset=info.exclude_unset)

    @property
    def start_keys(self) -> tuple[str, ...]:  # type: ignore[override]
        """The keys that a folder to start from gives; one vector's pooling and similarity only where they are used."""
        return SiameseConfig.start_keys if self.score.name == "siamese" else DualEncoderConfig.start_keys

    @property
    def markers(self) -> int:  # type: ignore[override]
        """The network's marker tokens."""
        return self.score.markers

    @property
    def start_heads(self) -> str | None:
        return self.score.start_heads

    @property
    def weights(self) -> dict[str, float]:
        return {**self._direction_weights, **self.score.regulariser_weights()}

    def weights_at(self, step: int) -> dict[str, float]:
        return {**self._direction_weights, **self.score.regulariser_weights(step)}

    @property
    def _direction_weights(self) -> dict[str, float]:
        return dict.fromkeys(LOSSES, 0.5) if self.both_directions else {LOSSES[0]: 1.0}

    def remarks(self, losses: Mapping[str, float]) -> dict[str, str]:
        return self.score.remarks(losses)

    @property
    def spans_step(self) -> bool:
        return self.ranking_config.spans_step

    @property
    def input_lengths(self) -> dict[str, int]:
        return self.ranking_config.input_lengths

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return PairsBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> DualEncoder:
        return NETWORKS[self.score.name](trunk, self.ranking_config)


class Pair(NamedTuple):
    """A query and its document as token ids, and the keys by which other pairs are known to be no negatives."""

    query: np.ndarray
    document: np.ndarray
    keys: tuple[int, int, int]  # of the query's text, of the document's, of the group


class PairsBatcher:
    """Documents of two segments -> queries [Q, ...] and documents [Q, ...]; document i is query i's own.

    Arrays: `query_ids`, `query_mask`, `document_ids`, `document_mask` and others, as the framings of the network make
    them. Each row must find a column (see `models.matching.relevance`). Pairs that share a text or a group are not each
    other's negatives.

    candidates      int64 [R, 1], the column that each row must find
    allowed         bool [R, C], only for negatives of the micro-batch: the columns that a row is compared with
    document_keys   int64 [C, k]: of the pair's texts, of its group and, of two sides, of the column's; and
                    `relevant_keys`, int64 [R, r], none of which a column has that the row is compared with; only for
                    negatives of the step
    """

    def __init__(self, keys: PairsConfig, vocabulary: Vocabulary) -> None:
        network = keys.ranking_config
        network.check_frame(vocabulary)
        self.keys, self.vocabulary = keys, vocabulary
        self.framings, self.sides = network.framings(vocabulary), network.sides

    def examples(self, documents: Sequence[TokenDocument]) -> list[Pair]:
        """Return the pairs with text on both sides."""
        pairs = []
        for (i,) in self.origins(documents):
            (query, answer), group = documents[i].segments, documents[i].group
            texts = text_key(query), text_key(answer)
            # a pair without a group has its query's key in that place, which excludes nothing more
            pairs.append(Pair(query, answer, (*texts, hash_of(group.encode()) if group else texts[0])))
        return pairs

    def origins(self, documents: Sequence[TokenDocument]) -> list[list[int]]:
        """Return the number of each pair's document."""
        for document in documents:
            if len(document.segments) != 2:
                raise ValueError(
                    f"a document has {len(document.segments)} segments, not two, a query and a document: name shards "
                    "of `data_prep pairs`"
                )
        return [[i] for i, document in enumerate(documents) if all(map(len, document.segments))]

    def micro_batch(self, examples: Sequence[Pair], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Frame and pad both sides; nothing is drawn."""
        texts = {"query": [pair.query for pair in examples], "document": [pair.document for pair in examples]}
        arrays = side_arrays(self.framings, texts)
        tokens = text_tokens([arrays["query_ids"], arrays["document_ids"]], self.vocabulary)
        keys, sides = np.array([pair.keys for pair in examples], np.int64), self.sides  # [Q, 3]
        arrays["candidates"] = sides.candidates(np.arange(len(keys))[:, None], len(keys))
        arrays |= relevance(keys, list(keys), sides, of_step=self.keys.compares_step)
        return MicroBatch(arrays, dict.fromkeys(self.keys.weights, len(examples)), tokens)


class OfPairs(DualEncoder):
    """A network of fine-tuning whose softmax is called `pairs`."""

    def losses(self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the losses of rows against columns, of this micro-batch or of the step: {loss: the sum over rows}."""
        losses = super().losses(queries, documents, arrays)
        return {LOSSES[0]: losses.pop("softmax"), **losses}


class PairsSiamese(OfPairs, Siamese):
    """One vector a text."""


class PairsColbert(OfPairs, Colbert):
    """One vector a token."""


class PairsSparse(OfPairs, Sparse):
    """One weight a term."""


NETWORKS: dict[str, type[OfPairs]] = {"siamese": PairsSiamese, "colbert": PairsColbert, "sparse": PairsSparse}
