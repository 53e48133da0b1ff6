"""Cross-Thought (Wang et al., 2020, section 3): words masked in short sequences, recovered with the others' help.

    x_m -- mask --> encoder, every sequence alone --> special tokens E_m, words H_m       eq. 1, 2
    E_0[n] .. E_M-1[n] --> cross-sequence Transformer --> C_0[n] .. C_M-1[n]              eq. 3, 4, slot by slot
    [C_m, H_m] --> one more Transformer layer --> the masked words                        eq. 8, 9

A sequence is too short to tell its masked words, and all it learns of the others passes through the states of their
special tokens: these, side by side, are the embedding of a sequence.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from models.blocks import pad_flat
from models.encoder import (
    TrunkModel,
    check_cls_sees_the_text,
    encode,
    initialise,
    max_positions,
    select,
    shape_of,
    token_embedding,
    with_own_tokens,
)
from models.losses import IGNORED
from models.masking import Masking
from models.mlm import LmHead
from models.task import Document, MicroBatch, Vocabulary
from models.transformer import TransformerLayer


class CrossThoughtBatcher:
    """Documents -> examples of M consecutive short sequences -> masked micro-batch.

    Arrays: `input_ids` int64 [B, M, T], each sequence its N special tokens and then its words, masked;
    `attention_mask` bool [B, M, T]; `offsets` int64 [B], where each example's words are to be put among the positions
    (any number: the model, which knows how many there are, takes it modulo the room); and the targets as a flat list,
    `mlm_positions` int64 [K] into the flattened [B * M * T] and `mlm_targets` int64 [K], filled up with 0 and -100.

    T is N + `sequence_tokens`. Only where every example is short is M less than `sequences`: as many as the longest
    needs, rounded up to a multiple of 8. K depends on B and M only.
    """

    def __init__(
        self, vocabulary: Vocabulary, sequences: int = 500, sequence_tokens: int = 64, special_tokens: int = 5
    ) -> None:
        """The paper's sizes by default.

        Args:
            vocabulary: gives [CLS], the first special token; the others' ids follow the vocabulary's.
            sequences: M, at least 1.
            sequence_tokens: words of a sequence, its special tokens not counted; at least 1.
            special_tokens: N, at least 1.

        Raises:
            ValueError: one of them is less than 1.
        """
        sizes = {"sequences": sequences, "sequence_tokens": sequence_tokens, "special_tokens": special_tokens}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.vocabulary = vocabulary
        self.sequences = sequences
        self.sequence_tokens = sequence_tokens
        self.special_tokens = special_tokens
        self.masking = Masking(vocabulary)
        self._rows = vocabulary.vocab_size + special_tokens - 1  # of the token embedding
        self._width = special_tokens + sequence_tokens  # T
        self._size = sequences * sequence_tokens  # words of an example

    def examples(self, documents: Sequence[Document]) -> list[np.ndarray]:
        """Up to M * `sequence_tokens` consecutive tokens each, int64 and unmasked; the last is kept however short.

        One document runs on into the next, with a [SEP] after each, as in RoBERTa, whose data preparation the paper
        takes over. A document without a token leaves nothing.
        """
        stream = self._stream(documents)
        return [stream[start : start + self._size] for start in range(0, len(stream), self._size)]

    def origins(self, documents: Sequence[Document]) -> list[list[int]]:
        """For each example the numbers of its documents."""
        lengths = [len(self._stream([document])) for document in documents]
        numbers = np.repeat(np.arange(len(documents)), lengths)
        return [np.unique(numbers[start : start + self._size]).tolist() for start in range(0, len(numbers), self._size)]

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each example and draw its offset, both with its own rng, and lay it out in sequences."""
        masked, positions, targets, offsets = [], [], [], []
        for ids, rng in zip(examples, rngs, strict=True):
            words, chosen = self.masking(ids, rng)
            masked.append(words)
            positions.append(self._slots(chosen))
            targets.append(ids[chosen])
            offsets.append(rng.integers(2**31))
        input_ids, attention_mask = self._lay_out(masked)
        batch, sequences, width = input_ids.shape
        size = batch * self.masking.most(sequences * self.sequence_tokens)
        starts = range(0, input_ids.size, sequences * width)
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "offsets": np.array(offsets),
            "mlm_positions": pad_flat([start + slots for start, slots in zip(starts, positions, strict=True)], size, 0),
            "mlm_targets": pad_flat(targets, size, IGNORED),
        }
        return MicroBatch(arrays, {"mlm": sum(map(len, targets))})

    def _stream(self, documents: Sequence[Document]) -> np.ndarray:
        """The documents one after another, each that has a token with a [SEP] behind it."""
        sep = np.array([self.vocabulary.sep])
        parts = [part for document in documents if any(map(len, document)) for part in (*document, sep)]
        return np.concatenate([sep[:0], *parts], dtype=np.int64)

    def _lay_out(self, examples: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """`input_ids` and `attention_mask` of examples: their special tokens, their words, and padding."""
        specials = [self.vocabulary.cls, *range(self.vocabulary.vocab_size, self._rows)]
        used = [-(-len(ids) // self.sequence_tokens) for ids in examples]
        sequences = min(-(-max(used) // 8) * 8, self.sequences)
        input_ids = np.full((len(examples), sequences, self._width), self.vocabulary.pad, dtype=np.int64)
        attention_mask = np.zeros(input_ids.shape, dtype=bool)
        for ids, row, mask, n in zip(examples, input_ids, attention_mask, used, strict=True):
            slots = self._slots(np.arange(len(ids)))
            row[:n, : self.special_tokens] = specials
            row.reshape(-1)[slots] = ids
            mask[:n, : self.special_tokens] = True
            mask.reshape(-1)[slots] = True
        return input_ids, attention_mask

    def _slots(self, words: np.ndarray) -> np.ndarray:
        """Where an example's words, counted from 0, stand in its flattened [M * T]."""
        sequence, place = np.divmod(words, self.sequence_tokens)
        return sequence * self._width + self.special_tokens + place


class CrossThought(TrunkModel):
    """The encoder (`trunk.`), the cross-sequence Transformer (`cross.`), the layer over both (`final.`) and `lm_head.`.

    The trunk's token embedding is also the output projection. Its last N - 1 rows are the special tokens' own.
    """

    trains_every_position = True

    def __init__(self, trunk: PreTrainedModel, special_tokens: int = 5, activation_checkpointing: bool = False) -> None:
        """Both layers on top have the trunk's shape, post-LayerNorm as in BERT; each is one layer, as released.

        Args:
            trunk: as `models.encoder.build_trunk` makes it, with N - 1 rows more than the tokenizer has tokens.
            special_tokens: N, at least 1.
            activation_checkpointing: keep the inputs of every Transformer layer only, and compute what lies between
                again in the backward pass, with the same dropout: a third more time, a sixth of the memory.

        Raises:
            ValueError: an option out of range; a trunk that has no `models.encoder.Shape`, that is causal, or whose
                positions cannot be chosen.
        """
        super().__init__()
        if special_tokens < 1:
            raise ValueError(f"special_tokens must be at least 1, not {special_tokens}")
        shape = shape_of(trunk)
        check_cls_sees_the_text(trunk)
        check_positions_can_be_chosen(trunk)
        self.special_tokens = special_tokens
        self.trunk = trunk
        self.cross = TransformerLayer(shape)
        self.final = TransformerLayer(shape)
        self.lm_head = LmHead(shape)
        for layer in (self.cross, self.final):
            initialise(layer, shape.initializer_range)
        if activation_checkpointing:
            layers = [part for part in trunk.modules() if isinstance(part, GradientCheckpointingLayer)]
            for part in (*layers, self.cross, self.final):
                compute_again(part)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, offsets: Tensor, mlm_positions: Tensor, mlm_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `CrossThoughtBatcher` as tensors -> {"mlm": the sum over masked words (eq. 9)}."""
        hidden = self.encode(input_ids, attention_mask, offsets)  # [B, M, T, H]
        crossed = self.across(hidden, attention_mask)  # [B, M, N, H]
        merged = torch.cat([crossed, hidden[:, :, self.special_tokens :]], dim=2).flatten(0, 1)  # [B * M, T, H]
        output = self.final(merged, merged, or_all(attention_mask).flatten(0, 1)[:, None])
        return {"mlm": self.lm_head(select(output, mlm_positions), token_embedding(self.trunk), mlm_targets)}

    def encode(self, input_ids: Tensor, attention_mask: Tensor, offsets: Tensor) -> Tensor:
        """Every sequence through the trunk by itself (eq. 1).

        Args:
            input_ids: int64 [B, M, T], each sequence beginning with its special tokens.
            attention_mask: bool [B, M, T].
            offsets: int64 [B], from 0 on.

        Returns:
            [B, M, T, H]; of no meaning where there is no token.
        """
        visible = or_all(attention_mask).flatten(0, 1)  # [B * M, T]
        positions = self.positions(offsets, input_ids.shape[2])[:, None].expand_as(input_ids)
        hidden = encode(self.trunk, input_ids.flatten(0, 1), visible, positions=positions.flatten(0, 1))
        return hidden.unflatten(0, input_ids.shape[:2])

    def positions(self, offsets: Tensor, width: int) -> Tensor:
        """The trunk's position ids for sequences of `width`, int64 [B, T].

        The special tokens are always at 0 .. N - 1, the words at N + r, N + r + 1, ... with r the offset modulo what
        there is room for (section 4.2): so every position is trained, and longer texts can be read later. With r = 0
        they are those of a stock encoder. RoBERTa and its kin count from padding_idx + 1.

        Raises:
            ValueError: the trunk has fewer positions than `width`.
        """
        most = max_positions(self.trunk)
        if width > most:
            raise ValueError(f"sequences of {width} tokens are longer than the trunk's {most} positions")
        slots = torch.arange(width, device=offsets.device)
        moved = (slots >= self.special_tokens) * (offsets[:, None] % (most - width + 1))
        return slots + moved + (self.trunk.config.max_position_embeddings - most)

    def across(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """The cross-sequence Transformer over each special-token slot by itself (eq. 3, 4), with the same weights.

        Args:
            hidden: [B, M, T, H] of `encode`.
            attention_mask: bool [B, M, T].

        Returns:
            C, [B, M, N, H]; zero where a sequence is all padding, which nothing attends to.
        """
        slots = self._by_slot(hidden)  # [B, N, M, H]
        real = attention_mask.any(dim=2)  # [B, M]
        visible = or_all(real)[:, None].expand(slots.shape[:3]).flatten(0, 1)[:, None]  # [B * N, 1, M]
        flat = slots.flatten(0, 1)
        crossed = self.cross(flat, flat, visible).view_as(slots).transpose(1, 2)  # [B, M, N, H]
        return crossed.masked_fill(~real[:, :, None, None], 0.0)

    def attention(self, input_ids: Tensor, attention_mask: Tensor, offsets: Tensor) -> Tensor:
        """On which sequences each sequence draws: the α of equation 7, of every head and special token (Table 4).

        Args:
            input_ids, attention_mask, offsets: as for `encode`; words may be masked or not.

        Returns:
            [B, heads, N, M, M], at least fp32. Row m is the distribution of sequence m's attention over all, itself
            included; rows and columns of sequences that are all padding are 0.
        """
        slots = self._by_slot(self.encode(input_ids, attention_mask, offsets))  # [B, N, M, H]
        heads = (self.cross.attention.heads, -1)
        query = self.cross.attention.query(slots).unflatten(-1, heads)  # [B, N, M, heads, d]
        key = self.cross.attention.key_value(slots).unflatten(-1, (2, *heads))[..., 0, :, :]
        scores = torch.einsum("bnqhd,bnkhd->bhnqk", query, key) * query.shape[-1] ** -0.5
        real = attention_mask.any(dim=2)
        alpha = scores.masked_fill(~or_all(real)[:, None, None, None], -torch.inf).softmax(
            -1, dtype=torch.promote_types(scores.dtype, torch.float32)
        )
        return alpha.masked_fill(~real[:, None, None, :, None], 0.0)

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The paper's sentence embedding: the states of all special tokens side by side, [B, N * H].

        Args:
            input_ids: int64 [B, T], `[CLS] text [SEP]`. The special tokens are put in; what then is longer than the
                trunk has positions is cut off.
            attention_mask: bool [B, T].
        """
        ids, mask = with_own_tokens(self.trunk, input_ids, attention_mask, self.special_tokens - 1)
        most = max_positions(self.trunk)
        states = self.encode(ids[:, None, :most], mask[:, None, :most], torch.zeros_like(input_ids[:, 0]))
        return self._by_slot(states).flatten(1)

    def _by_slot(self, hidden: Tensor) -> Tensor:
        """[B, M, T, H] -> the states of the special tokens, [B, N, M, H]."""
        return hidden[:, :, : self.special_tokens].transpose(1, 2)


def or_all(visible: Tensor) -> Tensor:
    """Bool [..., S], and all of S where none of it is visible: attention over nothing makes NaN of it."""
    return visible | ~visible.any(dim=-1, keepdim=True)


def compute_again(layer: nn.Module) -> None:
    """Keep only what enters the layer, and compute the rest again when its gradient is wanted."""
    forward: Any = partial(checkpoint, layer.forward, use_reentrant=False)
    layer.forward = forward


def check_positions_can_be_chosen(trunk: PreTrainedModel) -> None:
    """The positions of words are drawn at random: refuse a trunk that has no learned ones, or does not take them.

    Raises:
        ValueError: naming the trunk's `model_type`.
    """
    table = getattr(getattr(trunk, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding) or "position_ids" not in inspect.signature(trunk.forward).parameters:
        raise ValueError(
            f"Cross-Thought chooses the words' positions, which model_type {trunk.config.model_type!r} does not allow: "
            "take a trunk with learned positions, such as bert or roberta"
        )
