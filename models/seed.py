"""SEED (Lu et al., 2021: "Less is More", sections 3.1-3.2): an encoder whose [CLS] must feed a weak decoder.

    x -- mask --> encoder --> h --+--> h at masked positions --> L_MLM
                                  +--> h_0 --> weak decoder over x, unmasked --> L_dec (eq. 10)

One forward pass of the encoder serves both losses. Their weights (eq. 11: 1 and 1) are the recipe's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from models.blocks import pad, pad_flat
from models.encoder import TrunkModel, check_pretrainable, encode, max_positions, select, token_embedding
from models.losses import IGNORED, linear_cross_entropy
from models.mlm import LmHead, MlmBatcher
from models.seed_decoder import Variant, WeakDecoder, Window
from models.task import MicroBatch


class SeedBatcher(MlmBatcher):
    """MLM's micro-batch, and beside it what the decoder reads and predicts.

    Further arrays: `original_ids` int64 [B, T], unmasked; `decoder_positions` int64 [N] into the flattened
    [B * T], every slot t that has a next token; `decoder_targets` int64 [N], that token. [SEP] is a target like
    any other, padding is none. N is rounded up to a multiple of 64 (filled with 0 and -100): the large output
    projection computes next to nothing on padding, and its shapes stay few.
    """

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each block with its own rng and pad; count the targets of both losses."""
        arrays, counts = super().micro_batch(examples, rngs)
        original_ids, _ = pad(examples, self.max_tokens, self.vocabulary.pad)
        width = original_ids.shape[1]
        targets = sum(len(ids) - 1 for ids in examples)
        size = -(-targets // 64) * 64
        arrays |= {
            "original_ids": original_ids,
            "decoder_positions": pad_flat(
                [row * width + np.arange(len(x) - 1) for row, x in enumerate(examples)], size, 0
            ),
            "decoder_targets": pad_flat([ids[1:] for ids in examples], size, IGNORED),
        }
        return MicroBatch(arrays, counts | {"decoder": targets})


class Seed(TrunkModel):
    """The encoder (`trunk.`), BERT's head for masked tokens (`lm_head.`) and the weak decoder (`decoder.`).

    The encoder's token embedding is also the decoder's input embedding and both output projections: one
    parameter, the trunk's.
    """

    def __init__(
        self, trunk: PreTrainedModel, decoder_layers: int = 3, window: Window = 2, variant: Variant = "paper"
    ) -> None:
        """The paper's decoder has 3 layers with window 2; see `models.seed_decoder.WeakDecoder`.

        Args:
            trunk: as `models.encoder.build_trunk` makes it.
            decoder_layers: at least 1.
            window: k >= 1, or "all" for the whole past.
            variant: "paper", or "released" for the decoder of the authors' code.

        Raises:
            ValueError: an option out of range, or a trunk whose shape is unlike BERT's.
        """
        super().__init__()
        if decoder_layers < 1:
            raise ValueError(f"decoder_layers must be at least 1, not {decoder_layers}")
        if window != "all" and not (isinstance(window, int) and window >= 1):
            raise ValueError(f'window must be "all" or an integer of at least 1, not {window!r}')
        if variant not in ("paper", "released"):
            raise ValueError(f'variant must be "paper" or "released", not {variant!r}')
        check_pretrainable(trunk)
        self.trunk = trunk
        self.lm_head = LmHead(trunk.config)
        self.decoder = WeakDecoder(trunk.config, max_positions(trunk), decoder_layers, window, variant)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        mlm_positions: Tensor,
        mlm_targets: Tensor,
        original_ids: Tensor,
        decoder_positions: Tensor,
        decoder_targets: Tensor,
    ) -> dict[str, Tensor]:
        """The arrays of `SeedBatcher` as tensors -> {"mlm": sum over masked, "decoder": sum over all tokens}."""
        hidden = encode(self.trunk, input_ids, attention_mask)  # [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        decoded = self.decoder(hidden[:, 0], original_ids, embedding)  # [B, T, H]
        return {
            "mlm": self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets),
            "decoder": linear_cross_entropy(select(decoded, decoder_positions), embedding, None, decoder_targets),
        }
