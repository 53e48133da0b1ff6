"""Condenser (Gao and Callan, 2021, section 3): a head that knows the text's late state by its [CLS] alone.

    x -- mask --> early layers --> h_early --+--> late layers --> h_late at masked positions --> L_MLM of the backbone
                                             |                      |
                                             +-- tokens --> head <--+ h_late's [CLS]
                                                             +--> masked positions --> L_MLM of the head

What the late layers find out about the text reaches the head through [CLS] only. The loss is the sum of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.encoder import (
    TrunkModel,
    check_cls_sees_the_text,
    encode_with_layer,
    initialise,
    select,
    shape_of,
    token_embedding,
)
from models.mlm import LmHead, MlmBatcher
from models.task import MicroBatch, of_another
from models.transformer import TransformerLayer


class CondenserBatcher(MlmBatcher):
    """MLM's micro-batch; its targets are those of two losses."""

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """As MLM's, counted twice."""
        arrays, counts = super().micro_batch(examples, rngs)
        return MicroBatch(arrays, {"mlm": counts["mlm"], "head": counts["mlm"]})


class Condenser(TrunkModel):
    """The encoder (`trunk.`), the Condenser head (`head.`) and BERT's head (`lm_head.`), which serves both losses."""

    bottleneck_terms = ("head",)

    def __init__(self, trunk: PreTrainedModel, early_layers: int | None = None, head_layers: int = 2) -> None:
        """The paper splits 12 layers into 6 and 6 and puts 2 on top.

        Args:
            trunk: as `models.encoder.build_trunk` makes it.
            early_layers: after how many of the trunk's layers the head takes its tokens; by default half of them.
            head_layers: at least 1.

        Raises:
            ValueError: an option out of range, or a trunk that is causal or has no `models.encoder.Shape`.
        """
        super().__init__()
        shape = shape_of(trunk)
        check_cls_sees_the_text(trunk)
        layers = trunk.config.num_hidden_layers
        early = layers // 2 if early_layers is None else early_layers
        if not 1 <= early < layers:
            raise ValueError(f"early_layers must be at least 1 and below the trunk's {layers} layers, not {early}")
        if head_layers < 1:
            raise ValueError(f"head_layers must be at least 1, not {head_layers}")
        self.early_layers = early
        self.trunk = trunk
        self.lm_head = LmHead(shape)
        self.head = nn.ModuleList(TransformerLayer(shape) for _ in range(head_layers))
        initialise(self.head, shape.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        mlm_positions: Tensor,
        mlm_targets: Tensor,
        swap: bool = False,
    ) -> dict[str, Tensor]:
        """The arrays of `CondenserBatcher` as tensors -> {"mlm": ..., "head": ...}, sums over masked tokens.

        With `swap` the head reads the late [CLS] of another sequence (`models.task.Bottleneck`).
        """
        early, late = encode_with_layer(self.trunk, input_ids, attention_mask, self.early_layers)  # each [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        cls = of_another(late[:, :1]) if swap else late[:, :1]  # [B, 1, H]
        x = torch.cat([cls, early[:, 1:]], dim=1)
        # [CLS] is always seen: a softmax over a row of nothing but padding would be NaN
        visible = torch.cat([torch.ones_like(attention_mask[:, :1]), attention_mask[:, 1:]], dim=1)  # [B, T]
        for layer in self.head:
            x = layer(x, x, visible[:, None])
        return {
            "mlm": self.lm_head(select(late, mlm_positions), embedding, mlm_targets),
            "head": self.lm_head(select(x, mlm_positions), embedding, mlm_targets),
        }
