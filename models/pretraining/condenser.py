"""Condenser (Gao and Callan, 2021, section 3): a head that reads the text's late state through [CLS] only.

    x -- mask --> early layers --> h_early --+--> late layers --> h_late at masked positions --> L_MLM of the backbone
                                             |                      |
                                             +-- tokens --> head <--+ h_late's [CLS]
                                                             +--> masked positions --> L_MLM of the head

What the late layers add reaches the head through [CLS] only. The loss is the sum of both.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.encode import encode_with_layer
from deepsiam.models.interface import Batcher, MicroBatch, Vocabulary, swap_vectors
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.pooling import select
from deepsiam.models.layers.shape import initialise, shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.pretraining.config import BlockConfig
from deepsiam.models.pretraining.mlm import MlmBatcher
from deepsiam.models.trunk import Encoder, require_bidirectional, token_embedding


class CondenserConfig(BlockConfig):
    """Condenser: masked words, predicted by the encoder and by a head on its early tokens and late [CLS]."""

    loss_terms = ("mlm", "head")

    name: Literal["condenser"]
    early_layers: PositiveInt | None = None  # before the tokens that the head reads; null: half of the trunk's
    head_layers: PositiveInt = 2

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return CondenserBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return Condenser(trunk, self)


class CondenserBatcher(MlmBatcher):
    """MLM's micro-batch, whose targets serve two losses."""

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        arrays, counts, tokens = super().micro_batch(examples, rngs)
        return MicroBatch(arrays, {"mlm": counts["mlm"], "head": counts["mlm"]}, tokens)


class Condenser(Encoder):
    """The encoder (`trunk.`), the Condenser head (`head.`) and BERT's head (`lm_head.`), which serves both losses."""

    bottleneck_terms = ("head",)

    def __init__(self, trunk: PreTrainedModel, keys: CondenserConfig) -> None:
        """Split the trunk into early and late layers; the paper splits 12 into 6 and 6, with a head of 2."""
        super().__init__()
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        layers = trunk.config.num_hidden_layers
        number = layers // 2 if keys.early_layers is None else keys.early_layers
        if not 1 <= number < layers:
            raise ValueError(f"early_layers must be at least 1 and below the trunk's {layers} layers, not {number}")
        self.early_layers = number
        self.trunk = trunk
        self.lm_head = LmHead(shape)
        self.head = nn.ModuleList(TransformerLayer(shape) for _ in range(keys.head_layers))
        initialise(self.head, shape.initializer_range)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, mlm_positions: Tensor, mlm_targets: Tensor, swap: bool = False
    ) -> dict[str, Tensor]:
        """The arrays of `CondenserBatcher` as tensors -> {"mlm": ..., "head": ...}, sums over masked tokens.

        With `swap` the head reads the late [CLS] of another sequence (`models.interface.Bottleneck`).
        """
        h_early, h_late = encode_with_layer(self.trunk, input_ids, attention_mask, self.early_layers)  # each [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        cls = swap_vectors(h_late[:, :1]) if swap else h_late[:, :1]  # [B, 1, H]
        x = torch.cat([cls, h_early[:, 1:]], dim=1)  # [B, T, H]: h_late's [CLS], h_early's tokens
        # [CLS] is always visible: in a row of padding only, a softmax over nothing would be NaN
        visible = torch.cat([torch.ones_like(attention_mask[:, :1]), attention_mask[:, 1:]], dim=1)  # [B, T]
        for layer in self.head:
            x = layer(x, x, visible[:, None])
        return {
            "mlm": self.lm_head(select(h_late, mlm_positions), embedding, mlm_targets),
            "head": self.lm_head(select(x, mlm_positions), embedding, mlm_targets),
        }
