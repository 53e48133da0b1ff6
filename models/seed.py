"""SEED (Lu et al., 2021: "Less is More", sections 3.1-3.2): an encoder whose [CLS] must feed a weak decoder.

    x -- mask --> encoder --> h --+--> h at masked positions --> L_MLM
                                  +--> h_0 --> weak decoder over x, unmasked --> L_dec (eq. 10)

One forward pass of the encoder serves both losses. Their weights (eq. 11: 1 and 1) are the recipe's.

Section 4.3 compares with two controls: a trained encoder that is frozen (`freeze_encoder`, "RoBERTa-CLS"), and a
decoder to which no encoder speaks (`cls` false, "no-CLS").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from models.blocks import Packing, pad
from models.encoder import (
    TrunkModel,
    check_cls_sees_the_text,
    encode,
    max_positions,
    select,
    shape_of,
    token_embedding,
)
from models.losses import linear_cross_entropy
from models.mlm import LmHead, MlmBatcher
from models.next_tokens import next_tokens
from models.seed_decoder import Variant, WeakDecoder, Window
from models.task import MicroBatch, Vocabulary, of_another


class SeedBatcher(MlmBatcher):
    """MLM's micro-batch, and beside it what the decoder reads and predicts.

    Further arrays: `original_ids` int64 [B, T], unmasked; `decoder_positions` int64 [N] into the flattened
    [B * T], every slot t that has a next token; `decoder_targets` int64 [N], that token: see `models.next_tokens`.
    [SEP] is a target like any other, [CLS] is none.

    Without `mlm` the input is masked all the same, but the masked words are no targets.
    """

    def __init__(
        self, vocabulary: Vocabulary, max_tokens: int, packing: Packing = "complete", mlm: bool = True
    ) -> None:
        """As `MlmBatcher`; `mlm` as the model's."""
        super().__init__(vocabulary, max_tokens, packing)
        self.mlm = mlm

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each block with its own rng and pad; count the targets of both losses."""
        arrays, counts = super().micro_batch(examples, rngs)
        if not self.mlm:
            del arrays["mlm_positions"], arrays["mlm_targets"], counts["mlm"]
        original_ids, _ = pad(examples, self.max_tokens, self.vocabulary.pad)
        positions, targets, count = next_tokens(examples, original_ids.shape[1])
        arrays |= {"original_ids": original_ids, "decoder_positions": positions, "decoder_targets": targets}
        return MicroBatch(arrays, counts | {"decoder": count})


class Seed(TrunkModel):
    """The encoder (`trunk.`), BERT's head for masked tokens (`lm_head.`) and the weak decoder (`decoder.`).

    The encoder's token embedding is also the decoder's input embedding and both output projections: one
    parameter, the trunk's. Where the encoder is frozen, so are these: the decoder learns around a fixed table.
    """

    bottleneck_terms = ("decoder",)

    def __init__(
        self,
        trunk: PreTrainedModel,
        decoder_layers: int = 3,
        window: Window = 2,
        variant: Variant = "paper",
        cls: bool = True,
        freeze_encoder: bool = False,
        mlm: bool = True,
    ) -> None:
        """The paper's decoder has 3 layers with window 2; see `models.seed_decoder.WeakDecoder`.

        Args:
            trunk: as `models.encoder.build_trunk` makes it.
            decoder_layers: at least 1.
            window: k >= 1, or "all" for the whole past.
            variant: "paper", or "released" for the decoder of the authors' code.
            cls: whether h_0 reaches the decoder.
            freeze_encoder: train the decoder alone, on the h_0 of the trunk as it is, which runs without dropout.
            mlm: whether masked words are a loss too; not with `freeze_encoder`, for it would train nothing.

        Raises:
            ValueError: an option out of range, or a trunk that is causal or has no `models.encoder.Shape`.
        """
        super().__init__()
        if decoder_layers < 1:
            raise ValueError(f"decoder_layers must be at least 1, not {decoder_layers}")
        if window != "all" and not (isinstance(window, int) and window >= 1):
            raise ValueError(f'window must be "all" or an integer of at least 1, not {window!r}')
        if variant not in ("paper", "released"):
            raise ValueError(f'variant must be "paper" or "released", not {variant!r}')
        if freeze_encoder and mlm:
            raise ValueError("a frozen encoder learns nothing from masked words: freeze_encoder goes without mlm")
        shape = shape_of(trunk)
        check_cls_sees_the_text(trunk)
        self.trunk = trunk
        self.lm_head = LmHead(shape) if mlm else None
        self.decoder = WeakDecoder(shape, max_positions(trunk), decoder_layers, window, variant, cls)
        self.cls, self.freeze_encoder = cls, freeze_encoder
        self.encodes = cls or mlm  # else nothing of the trunk is used but its token embedding
        if freeze_encoder or not self.encodes:
            trunk.requires_grad_(False).eval()
            token_embedding(trunk).requires_grad_(not freeze_encoder)

    def train(self, mode: bool = True) -> Seed:
        """A frozen encoder stays without dropout."""
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

        With `swap` the decoder reads the h_0 of another sequence (`models.task.Bottleneck`).
        """
        losses, h_0 = {}, None
        hidden = encode(self.trunk, input_ids, attention_mask) if self.encodes else None  # [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        if hidden is not None and self.lm_head is not None:
            assert mlm_positions is not None
            assert mlm_targets is not None
            losses["mlm"] = self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets)
        if hidden is not None and self.cls:
            h_0 = of_another(hidden[:, 0]) if swap else hidden[:, 0]  # [B, H]
        decoded = self.decoder(h_0, original_ids, embedding)  # [B, T, H]
        decoder = linear_cross_entropy(select(decoded, decoder_positions), embedding, None, decoder_targets)
        return losses | {"decoder": decoder}
