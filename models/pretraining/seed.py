"""SEED (Lu et al., 2021: "Less is More", sections 3.1-3.2): an encoder whose [CLS] must help a weak decoder.

    x -- mask --> encoder --> h --+--> h at masked positions --> L_MLM
                                  +--> h_0 --> weak decoder over x, unmasked --> L_dec (eq. 10)

One forward pass of the encoder serves both losses. The recipe sets their weights (eq. 11: 1 and 1).

Section 4.3 compares with two controls: a trained encoder that is frozen (`freeze_encoder`, "RoBERTa-CLS"), and a
decoder that reads nothing from the encoder (`cls` false, "no-CLS"). With `pooling: mean` h_0 is the mean of all states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import pad
from deepsiam.models.batching.targets import next_tokens
from deepsiam.models.config import Section, unhashed
from deepsiam.models.encode import encode
from deepsiam.models.interface import Batcher, MicroBatch, Vocabulary, swap_vectors
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.losses import linear_cross_entropy
from deepsiam.models.layers.pooling import bottleneck, select
from deepsiam.models.layers.shape import shape_of
from deepsiam.models.pretraining.config import BlockConfig
from deepsiam.models.pretraining.mlm import MlmBatcher
from deepsiam.models.pretraining.seed_decoder import Variant, WeakDecoder
from deepsiam.models.trunk import Encoder, max_positions, require_bidirectional, token_embedding


class LossWeights(Section):
    """Weights of SEED's two token-mean losses; the paper sums them (equation 11), its code halves each."""

    mlm: float = Field(1.0, ge=0)
    decoder: float = Field(1.0, ge=0)


class SeedConfig(BlockConfig):
    """SEED pre-training: masked language modelling and reconstruction by a weak decoder."""

    start_keys = ("pooling",)

    name: Literal["seed"]
    decoder_layers: PositiveInt = 3
    window: PositiveInt | Literal["all"] = 2
    variant: Variant = "paper"
    pooling: Literal["cls", "mean"] = unhashed("cls")  # what the decoder reads of the encoder's states
    cls: bool = True  # false: the decoder reads nothing from the encoder
    freeze_encoder: bool = False  # true: train the decoder only
    loss_weights: LossWeights = LossWeights()

    @model_validator(mode="after")
    def _has_a_loss(self) -> SeedConfig:
        if not any(self.weights.values()):
            hint = "decoder above 0: a frozen encoder has no loss of its own" if self.freeze_encoder else "one above 0"
            raise ValueError(f"method.loss_weights: no loss has a weight: set {hint}")
        return self

    @property
    def mlm(self) -> bool:
        """Whether masked words are a loss: false at weight 0 or with a frozen encoder."""
        return self.loss_weights.mlm > 0 and not self.freeze_encoder

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each loss term that is computed."""
        return self.loss_weights.model_dump(exclude=set() if self.mlm else {"mlm"})

    @property
    def needs_trained_encoder(self) -> bool:
        """True with a frozen encoder: its [CLS] is useful only if the encoder is already trained."""
        return self.freeze_encoder

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return SeedBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return Seed(trunk, self)


class SeedBatcher(MlmBatcher):
    """MLM's micro-batch, and what the decoder reads and predicts.

    Further arrays: `original_ids` int64 [B, T], unmasked; `decoder_positions` int64 [N] into the flattened
    [B * T], every slot t that has a next token; `decoder_targets` int64 [N], that token: see
    `models.batching.targets`. [SEP] is a target like any other token, [CLS] never is.

    Without `mlm` the input is masked too, but the masked words are not targets.
    """

    def __init__(self, keys: SeedConfig, vocabulary: Vocabulary) -> None:
        super().__init__(keys, vocabulary)
        self.mlm = keys.mlm

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        arrays, counts, tokens = super().micro_batch(examples, rngs)
        if not self.mlm:
            del arrays["mlm_positions"], arrays["mlm_targets"], counts["mlm"]
        original_ids, _ = pad(examples, self.keys.max_tokens, self.vocabulary.pad)
        positions, targets, count = next_tokens(examples, original_ids.shape[1])
        arrays |= {"original_ids": original_ids, "decoder_positions": positions, "decoder_targets": targets}
        return MicroBatch(arrays, counts | {"decoder": count}, tokens)


class Seed(Encoder):
    """The encoder (`trunk.`), BERT's head for masked tokens (`lm_head.`) and the weak decoder (`decoder.`).

    The encoder's token embedding is also the decoder's input embedding and both output projections: one
    parameter, owned by the trunk. Freezing the encoder freezes it too; the decoder then learns with a fixed table.
    """

    bottleneck_terms = ("decoder",)

    def __init__(self, trunk: PreTrainedModel, keys: SeedConfig) -> None:
        """Build the heads; the paper's decoder has 3 layers with window 2 (`deepsiam.models.pretraining.seed_decoder`).

        A frozen trunk does not change, and runs without dropout.
        """
        super().__init__()
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        self.trunk = trunk
        self.lm_head = LmHead(shape) if keys.mlm else None
        self.decoder = WeakDecoder(
            shape, max_positions(trunk), keys.decoder_layers, keys.window, keys.variant, keys.cls
        )
        self.cls, self.pooling, self.freeze_encoder = keys.cls, keys.pooling, keys.freeze_encoder
        self.encodes = keys.cls or keys.mlm  # else only the trunk's token embedding is used
        if keys.freeze_encoder or not self.encodes:
            trunk.requires_grad_(False).eval()
            token_embedding(trunk).requires_grad_(not keys.freeze_encoder)  # a decoder alone still learns its words

    def train(self, mode: bool = True) -> Seed:
        """Switch to training or evaluation; a frozen encoder always runs without dropout."""
        super().train(mode)
        if self.freeze_encoder:
            self.trunk.eval()
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        original_ids: Tensor,
        decoder_positions: Tensor,
        decoder_targets: Tensor,
        mlm_positions: Tensor | None = None,
        mlm_targets: Tensor | None = None,
        swap: bool = False,
    ) -> dict[str, Tensor]:
        """The arrays of `SeedBatcher` as tensors -> {"mlm": sum over masked, "decoder": sum over all tokens}.

        With `swap` the decoder reads the h_0 of another sequence (`models.interface.Bottleneck`).
        """
        losses, h_0 = {}, None
        hidden = encode(self.trunk, input_ids, attention_mask) if self.encodes else None  # [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        if hidden is not None and self.lm_head is not None:
            assert mlm_positions is not None
            assert mlm_targets is not None
            losses["mlm"] = self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets)
        if hidden is not None and self.cls:
            h_0 = bottleneck(hidden, attention_mask, self.pooling)  # [B, H]
            h_0 = swap_vectors(h_0) if swap else h_0
        decoded = self.decoder(h_0, original_ids, embedding)  # [B, T, H]
        # tied to the embedding without bias or transform, as in the released code
        decoder = linear_cross_entropy(select(decoded, decoder_positions), embedding, None, decoder_targets)
        return losses | {"decoder": decoder}
