"""A Siamese network whose softmax goes both ways: a query among documents, and a document among queries."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam import register
from deepsiam.models.batching.candidates import Candidates, Example
from deepsiam.models.interface import Batcher, MicroBatch, Vocabulary
from deepsiam.models.layers.ranking_losses import in_batch_softmax
from deepsiam.models.matching.dual_encoder import DualEncoderBatcher
from deepsiam.models.matching.siamese import Siamese, SiameseConfig, Similarity
from deepsiam.models.trunk import Encoder
from deepsiam.models.vectors import Vectors


class TwoWayConfig(SiameseConfig):
    """A Siamese network, by cosine unless asked otherwise; both directions count the same."""

    name: Literal["two_way"]
    loss: Literal["softmax"] = "softmax"
    negatives: Literal["micro_batch"] = "micro_batch"
    similarity: Similarity = "cosine"
    temperature: float = 0.05

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"document": 0.5, "query": 0.5}

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> Batcher:
        """Build the batcher of queries and documents."""
        return TwoWayBatcher(self, vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        """Build the model around a trunk."""
        return TwoWay(trunk, self)


class TwoWayBatcher(DualEncoderBatcher):
    """The arrays of `DualEncoderBatcher`; each pair is a target in both directions."""

    def micro_batch(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Make the arrays of one forward pass."""
        batch = super().micro_batch(examples, rngs)
        return batch._replace(counts={"document": len(examples), "query": len(examples)})


class TwoWay(Siamese):
    """One vector for a text, as `Siamese`."""

    def losses(self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The two losses, each summed over the pairs."""
        scores = self.score(queries, documents) / self.keys.temperature  # [Q, D]; document i < Q is relevant to query i
        n, positives, allowed = len(scores), arrays["candidates"][:, 0], arrays["allowed"]
        return {
            "document": in_batch_softmax(scores, positives, allowed),
            "query": in_batch_softmax(scores[:, :n].T, positives, allowed[:, :n].T),
        }


register("matching", "two_way", TwoWayConfig)
