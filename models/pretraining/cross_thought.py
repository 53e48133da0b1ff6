"""Cross-Thought (Wang et al., 2020, section 3): masked words of short sequences, recovered from other sequences.

    x_m -- mask --> encoder, every sequence alone --> special tokens E_m, words H_m       eq. 1, 2
    E_0[n] .. E_M-1[n] --> cross-sequence Transformer --> C_0[n] .. C_M-1[n]              eq. 3, 4, slot by slot
    [C_m, H_m] --> one more Transformer layer --> the masked words                        eq. 8, 9

A sequence is too short to predict its own masked words, and all information from the others passes through the states
of their special tokens: these states, concatenated, are the embedding of a sequence.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.arrays import keep_lengths
from deepsiam.models.batching.packing import pad_flat, text_tokens
from deepsiam.models.batching.targets import Masking
from deepsiam.models.encode import encode, first_position, insert_special_tokens
from deepsiam.models.interface import IGNORED, Batcher, MicroBatch, TokenDocument, Vocabulary, require_roles
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.pooling import select, unmask_empty_rows
from deepsiam.models.layers.shape import initialise, shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.trunk import Encoder, max_positions, require_bidirectional, token_embedding
from deepsiam.models.vectors import Vectors, one_vector


class CrossThoughtConfig(PretrainingConfig):
    """Cross-Thought: masked words of short sequences, recovered through the other sequences' special tokens."""

    loss_terms = ("mlm",)
    size_keys = ("sequences", "sequence_tokens")
    ranks_untuned = True  # as in the paper, for HotpotQA (u)

    name: Literal["cross_thought"]
    sequences: PositiveInt = 500  # in an example
    sequence_tokens: PositiveInt = 64  # in a sequence, without its special tokens
    special_tokens: PositiveInt = 5  # [CLS] and those that the method adds

    @property
    def added_tokens(self) -> int:
        return self.special_tokens - 1

    @property
    def input_lengths(self) -> dict[str, int]:
        return {"method.sequence_tokens": self.special_tokens + self.sequence_tokens}

    @property
    def example_tokens(self) -> int:
        return self.sequences * self.positions

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return CrossThoughtBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return CrossThought(trunk, self)


class CrossThoughtBatcher:
    """Documents -> examples of M consecutive short sequences -> masked micro-batch.

    Arrays: `input_ids` int64 [B, M, T], each sequence its N special tokens and then its words, masked;
    `attention_mask` bool [B, M, T]; `offsets` int64 [B], any numbers, by which each example's words are shifted along
    the positions (modulo the number of free positions, which the model knows); and the targets as a flat list,
    `mlm_positions` int64 [K] into the flattened [B * M * T] and `mlm_targets` int64 [K], filled up with 0 and -100.

    T is N + `sequence_tokens`. M is `sequences`, or less if every example is short: what the longest needs, rounded up
    to a multiple of 8. K depends on B and M only.
    """

    def __init__(self, keys: CrossThoughtConfig, vocabulary: Vocabulary) -> None:
        """Lay out examples in sequences; the ids of the special tokens after [CLS] follow the vocabulary's."""
        require_roles(vocabulary, "cls", "sep")
        self.keys, self.vocabulary = keys, vocabulary
        self.masking = Masking(vocabulary)
        self._rows = vocabulary.vocab_size + keys.added_tokens  # rows of the token embedding
        self._width = keys.positions  # T
        self._size = keys.sequences * keys.sequence_tokens  # words of an example

    def examples(self, documents: Sequence[TokenDocument]) -> list[np.ndarray]:
        """Cut examples of M * `sequence_tokens` consecutive tokens, int64 and unmasked; the last may be shorter.

        Documents are concatenated, with a [SEP] after each, as in RoBERTa, whose data preparation the paper uses. A
        document without tokens is left out.
        """
        stream = self._stream(documents)
        return [stream[start : start + self._size] for start in range(0, len(stream), self._size)]

    def origins(self, documents: Sequence[TokenDocument]) -> list[list[int]]:
        """Return for each example the numbers of its documents."""
        lengths = [len(self._stream([document])) for document in documents]
        numbers = np.repeat(np.arange(len(documents)), lengths)
        return [np.unique(numbers[start : start + self._size]).tolist() for start in range(0, len(numbers), self._size)]

    def micro_batch(self, examples: Sequence[np.ndarray], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each example and draw its offset, both with its own rng, and lay it out in sequences."""
        masked, positions, targets, offsets = [], [], [], []
        for ids, rng in zip(examples, rngs, strict=True):
            words, word_positions = self.masking(ids, rng)
            masked.append(words)
            positions.append(self._slots(word_positions))
            targets.append(ids[word_positions])
            offsets.append(rng.integers(2**31))
        input_ids, attention_mask = self._lay_out(masked)
        batch, sequences, width = input_ids.shape
        size = batch * self.masking.most(sequences * self.keys.sequence_tokens)
        starts = range(0, input_ids.size, sequences * width)
        arrays = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "offsets": np.array(offsets),
            "mlm_positions": pad_flat([start + slots for start, slots in zip(starts, positions, strict=True)], size, 0),
            "mlm_targets": pad_flat(targets, size, IGNORED),
        }
        return MicroBatch(arrays, {"mlm": sum(map(len, targets))}, text_tokens(examples, self.vocabulary))

    def _stream(self, documents: Sequence[TokenDocument]) -> np.ndarray:
        """Concatenate the documents that have tokens, with a [SEP] after each."""
        sep = np.array([self.vocabulary.sep])
        texts = [document.segments for document in documents]
        parts = [part for segments in texts if any(map(len, segments)) for part in (*segments, sep)]
        return np.concatenate([sep[:0], *parts], dtype=np.int64)

    def _lay_out(self, examples: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return `input_ids` and `attention_mask` of examples: special tokens, words, and padding."""
        specials = [self.vocabulary.cls, *range(self.vocabulary.vocab_size, self._rows)]
        used_sequences = [-(-len(ids) // self.keys.sequence_tokens) for ids in examples]
        sequences = min(-(-max(used_sequences) // 8) * 8, self.keys.sequences)
        input_ids = np.full((len(examples), sequences, self._width), self.vocabulary.pad, dtype=np.int64)
        attention_mask = np.zeros(input_ids.shape, dtype=bool)
        for ids, row, mask, n in zip(examples, input_ids, attention_mask, used_sequences, strict=True):
            slots = self._slots(np.arange(len(ids)))
            row[:n, : self.keys.special_tokens] = specials
            row.reshape(-1)[slots] = ids
            mask[:n, : self.keys.special_tokens] = True
            mask.reshape(-1)[slots] = True
        return input_ids, attention_mask

    def _slots(self, words: np.ndarray) -> np.ndarray:
        # of words counted from 0, in the example's flattened [M * T]
        sequence, word = np.divmod(words, self.keys.sequence_tokens)
        return sequence * self._width + self.keys.special_tokens + word


class CrossThought(Encoder):
    """The encoder (`trunk.`), the cross-sequence Transformer (`cross.`), the layer over both (`final.`) and `lm_head.`.

    The trunk's token embedding is also the output projection. Its last N - 1 rows belong to the added special tokens.
    """

    def __init__(self, trunk: PreTrainedModel, keys: CrossThoughtConfig) -> None:
        """Put two post-LayerNorm layers of the trunk's shape on top; each is one layer, as in the released code.

        The trunk's embedding has N - 1 rows more than the vocabulary.
        """
        super().__init__()
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        self.trains_every_position = positions_can_be_chosen(trunk)
        self.special_tokens = keys.special_tokens
        self.trunk = trunk
        self.cross = TransformerLayer(shape)
        self.final = TransformerLayer(shape)
        self.lm_head = LmHead(shape)
        for layer in (self.cross, self.final):
            initialise(layer, shape.initializer_range)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, offsets: Tensor, mlm_positions: Tensor, mlm_targets: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `CrossThoughtBatcher` as tensors -> {"mlm": the sum over masked words (eq. 9)}."""
        hidden = self.encode(input_ids, attention_mask, offsets)  # [B, M, T, H]
        crossed = self.across(hidden, attention_mask)  # [B, M, N, H]
        states = torch.cat([crossed, hidden[:, :, self.special_tokens :]], dim=2).flatten(0, 1)  # [B * M, T, H]
        output = self.final(states, states, unmask_empty_rows(attention_mask).flatten(0, 1)[:, None])
        return {"mlm": self.lm_head(select(output, mlm_positions), token_embedding(self.trunk), mlm_targets)}

    def encode(self, input_ids: Tensor, attention_mask: Tensor, offsets: Tensor) -> Tensor:
        """Run every sequence through the trunk, separately (eq. 1): [B, M, T, H], meaningless at padding.

        `input_ids` int64 and `attention_mask` bool are [B, M, T], each sequence beginning with its special tokens;
        `offsets` int64 [B] are 0 or more.
        """
        width = attention_mask.shape[2]
        # the trunk must attend to something in sequences of padding only too; `across` leaves these out
        visible = keep_lengths(
            unmask_empty_rows(attention_mask).flatten(0, 1),  # [B * M, T]
            lambda lengths: np.where(lengths > 0, lengths, width).ravel(),
            attention_mask,
        )
        positions = self.positions(offsets, width)
        if positions is not None:
            positions = positions[:, None].expand_as(input_ids).flatten(0, 1)  # one offset for all of an example
        hidden = encode(self.trunk, input_ids.flatten(0, 1), visible, positions=positions)
        return hidden.unflatten(0, input_ids.shape[:2])

    def positions(self, offsets: Tensor, width: int) -> Tensor | None:
        """Return the trunk's position ids for sequences of `width`, int64 [B, T].

        The special tokens are always at 0 .. N - 1, the words at N + r, N + r + 1, ..., where r is the offset modulo
        the number of starts that fit (section 4.2). So every position is trained, and longer texts can be read later.
        With r = 0 the positions are those of a stock encoder. RoBERTa and similar models count from padding_idx + 1.
        None where the trunk numbers its positions itself, as with r = 0: it has no table of them to train.
        """
        max_tokens = max_positions(self.trunk)
        if width > max_tokens:
            raise ValueError(f"sequences of {width} tokens are longer than the trunk's {max_tokens} positions")
        if not self.trains_every_position:
            return None
        slots = torch.arange(width, device=offsets.device)
        moved = (slots >= self.special_tokens) * (offsets[:, None] % (max_tokens - width + 1))
        return slots + moved + first_position(self.trunk)

    def across(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Run the cross-sequence Transformer over each special-token slot separately (eq. 3, 4), with the same weights.

        From `encode`'s states [B, M, T, H] it makes C, [B, M, N, H]: zero for a sequence of padding only, which no
        sequence attends to.
        """
        slots = self._by_slot(hidden)  # [B, N, M, H]
        has_text = attention_mask.any(dim=2)  # [B, M]
        visible = unmask_empty_rows(has_text)[:, None].expand(slots.shape[:3]).flatten(0, 1)[:, None]  # [B * N, 1, M]
        flat = slots.flatten(0, 1)
        crossed = self.cross(flat, flat, visible).view_as(slots).transpose(1, 2)  # [B, M, N, H]
        return crossed.masked_fill(~has_text[:, :, None, None], 0.0)

    def attention(self, input_ids: Tensor, attention_mask: Tensor, offsets: Tensor) -> Tensor:
        """Return the attention between sequences: α of equation 7, for every head and special token (Table 4).

        It is [B, heads, N, M, M], at least fp32. Row m is the attention of sequence m to all sequences, itself
        included; rows and columns of sequences that are only padding are 0.
        """
        slots = self._by_slot(self.encode(input_ids, attention_mask, offsets))  # [B, N, M, H]
        heads = (self.cross.attention.heads, -1)
        query = self.cross.attention.query(slots).unflatten(-1, heads)  # [B, N, M, heads, d]
        key = self.cross.attention.key_value(slots).unflatten(-1, (2, *heads))[..., 0, :, :]
        scores = torch.einsum("bnqhd,bnkhd->bhnqk", query, key) * query.shape[-1] ** -0.5
        has_text = attention_mask.any(dim=2)
        alpha = scores.masked_fill(~unmask_empty_rows(has_text)[:, None, None, None], -torch.inf).softmax(
            -1, dtype=torch.promote_types(scores.dtype, torch.float32)
        )
        return alpha.masked_fill(~has_text[:, None, None, :, None], 0.0)

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        """Return the paper's sentence embedding: the concatenated states of all special tokens, one vector of N * H.

        The special tokens are inserted into `[CLS] text [SEP]`, and then the text is cut to the trunk's positions.
        """
        longer, longer_mask = insert_special_tokens(self.trunk, ids, mask, self.special_tokens - 1)
        max_tokens = max_positions(self.trunk)
        visible = keep_lengths(
            longer_mask[:, None, :max_tokens], lambda lengths: lengths.clip(max=max_tokens)[:, None], longer_mask
        )
        states = self.encode(longer[:, None, :max_tokens], visible, torch.zeros_like(ids[:, 0]))
        return one_vector(self._by_slot(states).flatten(1))

    def _by_slot(self, hidden: Tensor) -> Tensor:
        """Select the states of the special tokens: [B, M, T, H] -> [B, N, M, H]."""
        return hidden[:, :, : self.special_tokens].transpose(1, 2)


def positions_can_be_chosen(trunk: PreTrainedModel) -> bool:
    """Whether a trunk has learned positions and takes `position_ids`; others, with rotary positions, know distances."""
    table = getattr(getattr(trunk, "embeddings", None), "position_embeddings", None)
    return isinstance(table, nn.Embedding) and "position_ids" in inspect.signature(trunk.forward).parameters
