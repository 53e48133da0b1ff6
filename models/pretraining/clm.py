"""Causal language modelling (Radford et al., 2018): the trunk itself predicts every token from those before it.

The Cross-Thought paper's baseline "Language Model" (section 4.3). A text's embedding is the state of its last token,
the only one that has seen the whole text: fine-tune with `pooling: last`.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import pad, text_tokens
from deepsiam.models.batching.targets import next_tokens
from deepsiam.models.causality import is_causal
from deepsiam.models.encode import encode
from deepsiam.models.interface import Batcher, MicroBatch, Vocabulary
from deepsiam.models.layers.losses import linear_cross_entropy
from deepsiam.models.layers.pooling import pool, select
from deepsiam.models.pretraining.config import BlockConfig
from deepsiam.models.pretraining.mlm import MlmBatcher
from deepsiam.models.trunk import Encoder, token_embedding
from deepsiam.models.vectors import Vectors, one_vector


class ClmConfig(BlockConfig):
    """Causal language modelling of MLM's blocks, unmasked; needs a trunk that is causal."""

    loss_terms = ("clm",)

    name: Literal["clm"]

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return ClmBatcher(self, vocabulary, mask=0.0)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return Clm(trunk)


class ClmBatcher(MlmBatcher):
    """Documents -> MLM's blocks -> micro-batch, without masks or random choices.

    Arrays: `input_ids` int64 [B, T], `attention_mask` bool [B, T]; `clm_positions` int64 [N] into the flattened
    [B * T] and `clm_targets` int64 [N]: see `models.batching.targets`. [SEP] is a target like any other token,
    [CLS] is never a target.
    """

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        input_ids, attention_mask = pad(examples, self.keys.max_tokens, self.vocabulary.pad)
        positions, targets, count = next_tokens(examples, input_ids.shape[1])
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "clm_positions": positions,
            "clm_targets": targets,
        }
        return MicroBatch(arrays, {"clm": count}, text_tokens(examples, self.vocabulary))


class Clm(Encoder):
    """A causal trunk whose token embedding is also the output projection, with no other parameters."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        """Take a trunk as `models.build_trunk` builds it: a decoder, or an encoder with `is_decoder: true`.

        The configuration keeps that key, so the trunk is causal in fine-tuning, evaluation and stock Hugging Face too.
        """
        super().__init__()  # no head: GPT's output projection is the embedding itself, without bias
        kind = f"model_type {trunk.config.model_type!r}"
        width, hidden = trunk.get_input_embeddings().embedding_dim, trunk.config.hidden_size
        if width != hidden:
            raise ValueError(f"{kind}: the embedding is the output too: its width {width} must be hidden_size {hidden}")
        if not is_causal(trunk):
            if getattr(trunk.config, "is_decoder", True):  # a type without this key cannot be made causal by it
                raise ValueError(f"{kind} has no causal attention: take bert or roberta, with trunk.is_decoder: true")
            raise ValueError(f"{kind} sees later tokens: set trunk.is_decoder: true")
        self.trunk = trunk

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        return one_vector(pool(encode(self.trunk, ids, mask), mask, "last"))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, clm_positions: Tensor, clm_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `ClmBatcher` as tensors -> {"clm": the sum over all tokens except the first of each block}."""
        hidden = encode(self.trunk, input_ids, attention_mask)
        embedding = token_embedding(self.trunk)
        return {"clm": linear_cross_entropy(select(hidden, clm_positions), embedding, None, clm_targets)}
