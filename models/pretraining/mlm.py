"""Masked language modelling (Devlin et al., 2018) without next-sentence prediction: the baseline."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import pack, pad, pad_flat, spread, text_tokens
from deepsiam.models.batching.targets import Masking
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED, Batcher, MicroBatch, TokenDocument, Vocabulary, require_roles
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.pooling import select
from deepsiam.models.layers.shape import shape_of
from deepsiam.models.pretraining.config import BlockConfig
from deepsiam.models.trunk import Encoder, require_bidirectional, token_embedding


class MlmConfig(BlockConfig):
    """Masked language modelling alone: the baseline of the SEED paper ("RoBERTa (Ours)")."""

    loss_terms = ("mlm",)

    name: Literal["mlm"]
    mask: float = Field(0.15, gt=0, lt=1)

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return MlmBatcher(self, vocabulary, self.mask)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return Mlm(trunk)


class MlmBatcher:
    """Documents -> blocks -> masked micro-batch.

    Arrays: `input_ids` int64 [B, T] (masked), `attention_mask` bool [B, T], and the targets as a flat list:
    `mlm_positions` int64 [M] into the flattened [B * T] and `mlm_targets` int64 [M], filled up with 0 and -100.
    M depends on B and T only, so shapes are fixed and the model never waits for a count of masked positions.
    """

    def __init__(self, keys: BlockConfig, vocabulary: Vocabulary, mask: float = 0.15) -> None:
        """Make the blocks that `keys` describe, by `models.batching.packing.pack`; `mask` is the share of targets."""
        # without masks it is ClmBatcher's base: a decoder's tokenizer may have no [CLS]
        require_roles(vocabulary, "sep", *(("cls",) if mask else ()))
        self.keys, self.vocabulary = keys, vocabulary
        self.masking = Masking(vocabulary, mask)

    def examples(self, documents: Sequence[TokenDocument]) -> list[np.ndarray]:
        """Return unmasked blocks of ids, int64; blocks of one document are placed far apart."""
        return self._blocks([document.segments for document in documents])

    def origins(self, documents: Sequence[TokenDocument]) -> list[list[int]]:
        """Return for each block the numbers of its documents, by packing these numbers in place of the ids."""
        size = self.vocabulary.vocab_size  # numbers start above the ids, since blocks hold special ids too
        numbered = [[np.full(len(s), size + i) for s in document.segments] for i, document in enumerate(documents)]
        return [[int(n) - size for n in np.unique(block) if n >= size] for block in self._blocks(numbered)]

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each block with its own rng and pad."""
        # map takes each rng after the last one was used: they may be one generator, re-keyed
        masked, positions = zip(*map(self.masking, examples, rngs), strict=True)
        input_ids, attention_mask = pad(masked, self.keys.max_tokens, self.vocabulary.pad)
        batch, width = input_ids.shape
        size = batch * self.masking.most(width - 2)  # [CLS] and a [SEP] are in every row, and never masked
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "mlm_positions": pad_flat([row * width + p for row, p in enumerate(positions)], size, 0),
            "mlm_targets": pad_flat([ids[p] for ids, p in zip(examples, positions, strict=True)], size, IGNORED),
        }
        return MicroBatch(arrays, {"mlm": sum(map(len, positions))}, text_tokens(examples, self.vocabulary))

    def _blocks(self, texts: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        return spread(pack(texts, self.keys.max_tokens, self.keys.blocks, self.vocabulary))


class Mlm(Encoder):
    """The encoder (`trunk.`) and BERT's head for masked tokens (`lm_head.`)."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        super().__init__()
        require_bidirectional(trunk)
        self.trunk = trunk
        self.lm_head = LmHead(shape_of(trunk))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, mlm_positions: Tensor, mlm_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `MlmBatcher` as tensors -> {"mlm": the sum over masked tokens}."""
        hidden = encode(self.trunk, input_ids, attention_mask)
        embedding = token_embedding(self.trunk)
        return {"mlm": self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets)}
