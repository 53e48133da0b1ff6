"""A bag of words: from [CLS] of a masked block, predict all of its tokens, in no order."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam import register
from deepsiam.models.batching.packing import pad, pad_flat, text_tokens
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED, Batcher, MicroBatch, Vocabulary
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.shape import shape_of
from deepsiam.models.pretraining.config import BlockConfig
from deepsiam.models.pretraining.mlm import MlmBatcher
from deepsiam.models.trunk import Encoder, require_bidirectional, token_embedding


class BagOfWordsConfig(BlockConfig):
    """A bag of words from [CLS]; the keys are those of `BlockConfig`."""

    name: Literal["bag_of_words"]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term."""
        return {"bag": 1.0}

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        """Build the batcher for a vocabulary."""
        return BagOfWordsBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        """Build the model around a trunk."""
        return BagOfWords(trunk)


class BagOfWordsBatcher(MlmBatcher):
    """Its blocks are those of `MlmBatcher`; `bag_targets` are their tokens, `bag_positions` the rows of these."""

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each block with its own rng and pad; the targets are the unmasked tokens."""
        masked = [self.masking(ids, rng)[0] for ids, rng in zip(examples, rngs, strict=True)]
        input_ids, attention_mask = pad(masked, self.keys.max_tokens, self.vocabulary.pad)
        rows = [np.full(len(ids), row) for row, ids in enumerate(examples)]
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "bag_positions": pad_flat(rows, input_ids.size, 0),
            "bag_targets": pad_flat(examples, input_ids.size, IGNORED),
        }
        return MicroBatch(arrays, {"bag": sum(map(len, examples))}, text_tokens(examples, self.vocabulary))


class BagOfWords(Encoder):
    """An encoder whose [CLS] learns to name all tokens of its block."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        """The head projects to the token embedding."""
        super().__init__()
        require_bidirectional(trunk)
        self.trunk = trunk
        self.lm_head = LmHead(shape_of(trunk))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, bag_positions: Tensor, bag_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `BagOfWordsBatcher` as tensors -> {"bag": the sum over all tokens}."""
        cls = encode(self.trunk, input_ids, attention_mask)[:, 0]  # [B, H]
        return {"bag": self.lm_head(cls[bag_positions], token_embedding(self.trunk), bag_targets)}


register("method", "bag_of_words", BagOfWordsConfig)
