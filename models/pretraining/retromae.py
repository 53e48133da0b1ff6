"""RetroMAE (Xiao et al., 2022, section 3): an encoder whose [CLS] must help a one-layer decoder that sees little.

    x -- mask 30 % --> encoder --> h --+--> h at masked positions --> L_enc
                                       +--> h_0 --> decoder, which for each token sees a different half of x --> L_dec

The loss is the sum of both. docs/pretraining/retromae.md lists where paper and released code differ or leave a choice.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import pad
from deepsiam.models.batching.targets import next_tokens
from deepsiam.models.config import unhashed
from deepsiam.models.encode import encode
from deepsiam.models.interface import Batcher, MicroBatch, Vocabulary, swap_vectors
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.pooling import Pooling, bottleneck, select
from deepsiam.models.layers.shape import Shape, initialise, shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.pretraining.config import BlockConfig
from deepsiam.models.pretraining.mlm import MlmBatcher
from deepsiam.models.trunk import Encoder, max_positions, require_bidirectional, token_embedding


class RetroMaeConfig(BlockConfig):
    """RetroMAE: masked words, and every word predicted by a one-layer decoder that sees half of the others."""

    loss_terms = ("mlm", "decoder")
    start_keys = ("pooling",)

    name: Literal["retromae"]
    encoder_mask: float = Field(0.3, gt=0, lt=1)  # tokens that the encoder predicts; in the paper 0.15 to 0.3
    pooling: Literal["cls", "mean"] = unhashed("cls")  # h_0, or the mean of all states in its place
    decoder_mask: float = Field(0.5, ge=0, le=1)  # hidden from each prediction; in the paper 0.5 to 0.7

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return RetroMaeBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return RetroMae(trunk, self.pooling)


class RetroMaeBatcher(MlmBatcher):
    """MLM's micro-batch at a higher masking rate, and the arrays that the decoder reads, sees and predicts.

    Further arrays: `original_ids` int64 [B, T], unmasked; `visible_bits` uint8 [B, T, T / 8 rounded up], where bit
    j % 8 of byte j // 8 of row i is 1 if the decoder sees token j when it predicts token i; `decoder_positions`
    int64 [N] into the flattened [B * T], every slot except [CLS], and `decoder_targets` int64 [N], the tokens there,
    filled up as in `models.batching.targets`. [SEP] is a token like any other. `decoder_mask` counts in 256ths.

    For 512 tokens the bits are 32 KB, an eighth of a bool matrix, and cost a loader worker a third of a millisecond.
    """

    def __init__(self, keys: RetroMaeConfig, vocabulary: Vocabulary) -> None:
        super().__init__(keys, vocabulary, keys.encoder_mask)
        self.decoder_mask = keys.decoder_mask

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """With each block's own rng, draw the tokens visible to each prediction, then mask; pad; count the targets."""
        packed_rows = []

        def after_drawing() -> Iterator[np.random.Generator]:
            for ids, rng in zip(examples, rngs, strict=True):
                visible = visible_tokens(len(ids), self.decoder_mask, rng)
                packed_rows.append(np.packbits(visible, axis=1, bitorder="little"))
                yield rng  # MLM's batcher masks with it before this loop re-keys it for the next block

        arrays, counts, tokens = super().micro_batch(examples, after_drawing())
        original_ids, _ = pad(examples, self.keys.max_tokens, self.vocabulary.pad)
        batch, width = original_ids.shape
        bits = np.zeros((batch, width, -(-width // 8)), dtype=np.uint8)
        bits[:, :, 0] = 1  # a padded slot sees the first slot: a softmax over nothing would be NaN
        for padded, packed in zip(bits, packed_rows, strict=True):
            padded[: packed.shape[0], : packed.shape[1]] = packed
        slots, targets, count = next_tokens(examples, width)
        arrays |= {
            "original_ids": original_ids,
            "visible_bits": bits,
            "decoder_positions": slots + 1,  # of the token itself, not of the slot before it
            "decoder_targets": targets,
        }
        return MicroBatch(arrays, counts | {"decoder": count}, tokens)


def visible_tokens(length: int, hidden: float, rng: np.random.Generator) -> np.ndarray:
    """Draw what each token is predicted from, bool [length, length]: a sample of the others, and always the first."""
    # a random byte for each pair of tokens: a float would be four or eight
    visible = np.frombuffer(rng.bytes(length * length), np.uint8).reshape(length, length) >= round(hidden * 256)
    np.fill_diagonal(visible, False)
    visible[:, 0] = True  # h_0 (section 3.3), so no row is empty
    return visible


class RetroMae(Encoder):
    """The encoder (`trunk.`), BERT's head (`lm_head.`), which serves both losses, and the decoder (`decoder.`).

    The encoder's token embedding is also the decoder's embedding and the output projection.
    """

    bottleneck_terms = ("decoder",)

    def __init__(self, trunk: PreTrainedModel, pooling: Pooling = "cls") -> None:
        super().__init__()
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        self.trunk, self.pooling = trunk, pooling
        self.lm_head = LmHead(shape)
        self.decoder = EnhancedDecoder(shape, max_positions(trunk))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        mlm_positions: Tensor,
        mlm_targets: Tensor,
        original_ids: Tensor,
        visible_bits: Tensor,
        decoder_positions: Tensor,
        decoder_targets: Tensor,
        swap: bool = False,
    ) -> dict[str, Tensor]:
        """The arrays of `RetroMaeBatcher` as tensors -> {"mlm": sum over masked, "decoder": sum over all tokens}.

        With `swap` the decoder reads the h_0 of another sequence (`models.interface.Bottleneck`).
        """
        hidden = encode(self.trunk, input_ids, attention_mask)  # [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        h_0 = bottleneck(hidden, attention_mask, self.pooling)  # [B, H]
        h_0 = swap_vectors(h_0) if swap else h_0
        visible = unpack_bits(visible_bits, original_ids.shape[1])  # [B, T, T], on the device
        decoded = self.decoder(h_0, original_ids, visible, embedding)  # [B, T, H]
        return {
            "mlm": self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets),
            "decoder": self.lm_head(select(decoded, decoder_positions), embedding, decoder_targets),
        }


class EnhancedDecoder(nn.Module):
    """One Transformer layer over two streams (section 3.3).

    H1 = [h_0 + p_0, h_0 + p_1, ...] gives the queries, H2 = [h_0, x_1 + p_1, ...] the keys and values; query i does not
    see x_i. The x_i + p_i go through LayerNorm and dropout, as in the encoder; the decoder has its own positions p.
    """

    def __init__(self, shape: Shape, max_tokens: int) -> None:
        super().__init__()
        self.positions = nn.Embedding(max_tokens, shape.hidden_size)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.dropout = nn.Dropout(shape.hidden_dropout_prob)
        self.layer = TransformerLayer(shape)
        initialise(self, shape.initializer_range)

    def forward(self, cls: Tensor, ids: Tensor, visible: Tensor, embedding: Tensor) -> Tensor:
        """Return states [B, T, H] that predict the tokens at their own slots.

        They are made of h_0 of the masked input [B, H], the unmasked `ids` int64 [B, T], and the encoder's token
        `embedding` [V, H]; slot i attends to slot j where `visible`, bool [B, T, T], is true at [i, j].
        """
        cls = cls[:, None]  # [B, 1, H]
        positions = self.positions(torch.arange(ids.shape[1], device=ids.device))  # [T, H]
        tokens = self.dropout(self.norm(F.embedding(ids, embedding) + positions))  # [B, T, H]
        return self.layer(cls + positions, torch.cat([cls, tokens[:, 1:]], dim=1), visible)


def unpack_bits(bits: Tensor, size: int) -> Tensor:
    """Unpack uint8 [..., size / 8 rounded up] to bool [..., size], the lowest bit of a byte first."""
    shifts = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return ((bits[..., None] >> shifts) & 1).bool().flatten(-2)[..., :size]
