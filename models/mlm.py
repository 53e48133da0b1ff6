"""Masked language modelling (Devlin et al., 2018) without next-sentence prediction: the plain baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from models.blocks import Packing, pack, pad, pad_flat, scatter
from models.encoder import Shape, TrunkModel, encode, initialise, select, shape_of, token_embedding
from models.losses import IGNORED, linear_cross_entropy
from models.masking import Masking
from models.task import Document, MicroBatch, Vocabulary


class MlmBatcher:
    """Documents -> blocks -> masked micro-batch.

    Arrays: `input_ids` int64 [B, T] (masked), `attention_mask` bool [B, T], and the targets as a flat list:
    `mlm_positions` int64 [M] into the flattened [B * T] and `mlm_targets` int64 [M], filled up with 0 and -100.
    M depends on B and T only, so the model has fixed shapes and never waits to count the masked positions.
    """

    def __init__(self, vocabulary: Vocabulary, max_tokens: int, packing: Packing = "complete") -> None:
        """Blocks have at most `max_tokens` tokens, [CLS] and [SEP] included; see `models.blocks.pack`."""
        if max_tokens < 3:
            raise ValueError(f"max_tokens must be at least 3 ([CLS], a token, [SEP]), not {max_tokens}")
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        self.packing = packing
        self.masking = Masking(vocabulary)

    def examples(self, documents: Sequence[Document]) -> list[np.ndarray]:
        """Blocks of ids, int64, unmasked, those of one document far apart."""
        return scatter(pack(documents, self.max_tokens, self.packing, self.vocabulary))

    def origins(self, documents: Sequence[Document]) -> list[list[int]]:
        """For each block the numbers of its documents: found by packing these numbers in the place of the ids."""
        size = self.vocabulary.vocab_size  # above it, for the blocks hold special ids too
        numbered = [[np.full(len(s), size + i) for s in document] for i, document in enumerate(documents)]
        return [[int(n) - size for n in np.unique(block) if n >= size] for block in self.examples(numbered)]

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each block with its own rng and pad."""
        masked, positions = zip(*map(self.masking, examples, rngs), strict=True)
        input_ids, attention_mask = pad(masked, self.max_tokens, self.vocabulary.pad)
        batch, width = input_ids.shape
        size = batch * self.masking.most(width - 2)
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "mlm_positions": pad_flat([row * width + p for row, p in enumerate(positions)], size, 0),
            "mlm_targets": pad_flat([ids[p] for ids, p in zip(examples, positions, strict=True)], size, IGNORED),
        }
        return MicroBatch(arrays, {"mlm": sum(map(len, positions))})


class LmHead(nn.Module):
    """BERT's language-model head: dense, activation, LayerNorm, the tied embedding, and a bias of its own."""

    def __init__(self, shape: Shape) -> None:
        """Widths and activation are the trunk's."""
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.activation = ACT2FN[shape.hidden_act]
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))
        initialise(self, shape.initializer_range)

    def forward(self, hidden: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
        """Summed cross-entropy of hidden [N, H] against targets [N], with the tied embedding [V, H]."""
        hidden = self.norm(self.activation(self.dense(hidden)))
        return linear_cross_entropy(hidden, embedding, self.bias, targets)


class Mlm(TrunkModel):
    """An encoder that learns to name the masked tokens."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        """`trunk` as `models.encoder.build_trunk` makes it; ValueError if it has no such `Shape`."""
        super().__init__()
        self.trunk = trunk
        self.lm_head = LmHead(shape_of(trunk))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, mlm_positions: Tensor, mlm_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `MlmBatcher` as tensors -> {"mlm": the sum over masked tokens}."""
        hidden = encode(self.trunk, input_ids, attention_mask)
        embedding = token_embedding(self.trunk)
        return {"mlm": self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets)}
