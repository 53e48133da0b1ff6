"""Poly-encoder pre-training (Humeau et al., 2020: "Poly-encoders", section 4.1): masked words, and what comes next.

    [CLS] INPUT [SEP] LABEL [SEP] --> encoder --> h --+--> h at masked positions --> mlm           in one batch,
                                                      +--> h_0 --> is LABEL the true one? --> next  in the other

A batch holds pairs of similar lengths, all for the same loss. Here such a batch is one *example*: a recipe has
`batch.micro: 1`, and an optimizer step takes `batch.size` batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import pad_flat
from deepsiam.models.batching.sentences import check_boundaries
from deepsiam.models.batching.targets import Masking
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED, Batcher, MicroBatch, TokenDocument, Vocabulary, require_roles, required
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.pooling import select
from deepsiam.models.layers.shape import initialise, shape_of
from deepsiam.models.pretraining.config import InputConfig
from deepsiam.models.trunk import Encoder, require_bidirectional, token_embedding, token_types

Loss = Literal["mlm", "next"]
PairKind = Literal["sentences", "spans", "utterances"]
SPECIAL = 3  # special tokens of a pair: [CLS] and two [SEP]
PADDING = 0.03  # largest share of padding in a group; the paper says "similar lengths"


class PolyConfig(InputConfig):
    """Poly-encoder pre-training on pairs of texts: batches for masked words alternate with batches for true pairs."""

    loss_terms = ("mlm", "next")
    size_keys = ("tokens", "max_tokens")

    name: Literal["poly"]
    pairs: PairKind = "sentences"
    tokens: PositiveInt = 32000  # maximum per group of pairs, with padding; a group is an example: batch.micro is 1

    @model_validator(mode="after")
    def _group_holds_a_pair(self) -> PolyConfig:
        if self.tokens < self.max_tokens:
            raise ValueError(f"method.tokens: a group must be at least method.max_tokens={self.max_tokens} tokens")
        return self

    @property
    def example_tokens(self) -> int:
        return self.tokens

    @property
    def needs_dialogues(self) -> bool:
        return self.pairs == "utterances"

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return PolyBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return PolyPretraining(trunk)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The true pairs of a window: pair i is INPUT `ids[start[i] : middle[i]]` and LABEL `ids[middle[i] : end[i]]`."""

    ids: np.ndarray  # uint32 [N]
    start: np.ndarray  # int64 [P], like the fields below
    middle: np.ndarray
    end: np.ndarray
    document: np.ndarray  # its number in the window
    group: np.ndarray  # the group of documents: equal for the parts of one book, thread or page

    @cached_property
    def lengths(self) -> np.ndarray:
        """The pairs' lengths, special tokens included, int64 [P]."""
        return self.end - self.start + SPECIAL

    @cached_property
    def by_label_length(self) -> tuple[np.ndarray, np.ndarray]:
        """The pairs' numbers, the shortest LABELs first, and the lengths of these LABELs: int64 [P] each."""
        lengths = self.end - self.middle
        order = np.argsort(lengths, kind="stable")
        return order, lengths[order]

    @cached_property
    def label(self) -> np.ndarray:
        """A number for each LABEL, equal for LABELs of the same tokens: int64 [P]."""
        numbers: dict[bytes, int] = {}
        spans = zip(self.middle.tolist(), self.end.tolist(), strict=True)
        return np.array([numbers.setdefault(self.ids[m:e].tobytes(), len(numbers)) for m, e in spans])

    def hash(self, pair: int) -> int:
        """Return `_hash` of the pair's tokens."""
        return _hash(self.ids[self.start[pair] : self.end[pair]])


class PairGroup(NamedTuple):
    """An example: pairs of similar lengths, all for the same loss."""

    loss: Loss
    pairs: Pairs  # all pairs of the window
    rows: np.ndarray  # int64 [R], the numbers of the group's pairs, the longest first
    width: int


class PolyBatcher:
    """Documents -> groups of pairs -> micro-batch.

    Arrays: `input_ids` int64 [B, T], `attention_mask` bool [B, T] and `token_types` int64 [B, T]: 1 for LABEL and its
    [SEP]. For the rows of `mlm`, the masked tokens as a flat list: `mlm_positions` int64 [M] into the flattened
    [B * T] and `mlm_targets` int64 [M], filled up with -100. `next_targets` int64 [B]: 1 where LABEL is the true one,
    0 where it is false, -100 in the rows of `mlm`. T and M depend only on the groups' widths and numbers of rows.
    """

    def __init__(self, keys: PolyConfig, vocabulary: Vocabulary) -> None:
        require_roles(vocabulary, "cls", "sep")
        self.keys, self.vocabulary = keys, vocabulary
        self.masking = Masking(vocabulary)

    def examples(self, documents: Sequence[TokenDocument]) -> list[PairGroup]:
        """Sort the window's pairs by length and cut them into groups; each pair is in one group and serves one loss.

        The order of the groups is pseudo-random but depends only on the texts. The two losses alternate; which one
        comes first is pseudo-random too.
        """
        check_boundaries(documents)
        pairs = cut_pairs(documents, self.keys.pairs, self.keys.max_tokens - SPECIAL)
        by_length = np.argsort(-pairs.lengths, kind="stable")
        groups = [(by_length[rows], width) for rows, width in self._cuts(pairs.lengths[by_length])]
        groups.sort(key=lambda group: pairs.hash(group[0][0]))
        # a false LABEL must come from another text
        losses: Sequence[Loss] = ("mlm", "next") if len(np.unique(pairs.group)) > 1 else ("mlm",)
        shift = pairs.hash(groups[0][0][-1]) if groups else 0
        return [
            PairGroup(losses[(shift + i) % len(losses)], pairs, rows, width) for i, (rows, width) in enumerate(groups)
        ]

    def origins(self, documents: Sequence[TokenDocument]) -> list[list[int]]:
        """Return for each group the numbers of its pairs' documents, without those of false LABELs, drawn later."""
        return [np.unique(group.pairs.document[group.rows]).tolist() for group in self.examples(documents)]

    def micro_batch(self, examples: Sequence[PairGroup], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each group, or draw its false LABELs, with its own rng; pad all to the widest."""
        width = max(group.width for group in examples)
        parts: list[dict[str, np.ndarray]] = []
        rows = 0
        for group, rng in zip(examples, rngs, strict=True):
            parts.append(self._mask(group, width, rng) if group.loss == "mlm" else self._draw(group, width, rng))
            parts[-1]["mlm_positions"] += rows * width  # into the flattened rows of all groups
            rows += len(group.rows)
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        specials = [required(self.vocabulary, "cls"), required(self.vocabulary, "sep")]
        tokens = int((arrays["attention_mask"] & ~np.isin(arrays["input_ids"], specials)).sum())
        counts = {loss: int((arrays[f"{loss}_targets"] != IGNORED).sum()) for loss in ("mlm", "next")}
        return MicroBatch(arrays, counts, tokens)

    def _cuts(self, lengths: np.ndarray) -> Iterator[tuple[slice, int]]:
        """Yield where to cut pairs, the longest first, and each width: as few groups as `tokens` and PADDING allow."""
        start = 0
        while start < len(lengths):
            width = self._width(int(lengths[start]))
            lengths_that_fit = lengths[start : start + self.keys.tokens // width]
            # lengths decrease, so the share of padding increases
            dense = np.cumsum(lengths_that_fit) >= (1 - PADDING) * width * np.arange(1, len(lengths_that_fit) + 1)
            rows = max(1, int(dense.sum()))  # a single pair may have more padding, by its width alone
            yield slice(start, start + rows), width
            start += rows

    def _width(self, length: int) -> int:
        # rounded up by less than 1/32: few widths mean few kernel shapes
        step = 1 << max(0, length.bit_length() - 6)
        return min(-(-length // step) * step, self.keys.max_tokens)

    def _mask(self, group: PairGroup, width: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Make the arrays of a group for `mlm`: true pairs, 15 % of all their tokens masked."""
        arrays = self._rows(group, group.rows, width)
        ids, is_token = arrays["input_ids"], arrays["attention_mask"]
        text = ids[is_token]
        ids[is_token], masked = self.masking(text, rng)
        size = self.masking.most(len(ids) * (group.width - SPECIAL))
        return arrays | {
            "mlm_positions": pad_flat([np.flatnonzero(is_token)[masked]], size, 0),
            "mlm_targets": pad_flat([text[masked]], size, IGNORED),
            "next_targets": np.full(len(ids), IGNORED),
        }

    def _draw(self, group: PairGroup, width: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Make the arrays of a group for `next`: unmasked, with on average every second LABEL false."""
        labels = group.rows.copy()
        for row in np.flatnonzero(rng.random(len(labels)) < 0.5):
            labels[row] = _other_pair(group, int(group.rows[row]), rng)
        return self._rows(group, labels, width) | {
            "mlm_positions": np.zeros(1, dtype=np.int64),  # no target; kernels should not get an empty array
            "mlm_targets": np.full(1, IGNORED),
            "next_targets": (labels == group.rows).astype(np.int64),
        }

    def _rows(self, group: PairGroup, labels: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """Make padded rows `[CLS] INPUT [SEP] LABEL [SEP]`: the group's INPUTs, the LABELs of pairs `labels`."""
        pairs, v = group.pairs, self.vocabulary
        start, middle = pairs.start[group.rows, None], pairs.middle[group.rows, None]
        label, end = pairs.middle[labels, None], pairs.end[labels, None]
        inner = middle - start + 1  # the slot of the [SEP] between, [R, 1]
        outer = inner + end - label + 1  # of the last [SEP], [R, 1]
        slot = np.arange(width)
        source = np.where(slot < inner, start - 1, label - inner - 1) + slot  # [R, T], into the window's ids
        ids = pairs.ids[source.clip(0, len(pairs.ids) - 1)].astype(np.int64)
        ids[:, 0] = v.cls
        ids[(slot == inner) | (slot == outer)] = v.sep
        ids[slot > outer] = v.pad
        types = ((slot > inner) & (slot <= outer)).astype(np.int64)
        return {"input_ids": ids, "attention_mask": slot <= outer, "token_types": types}


def _hash(ids: np.ndarray) -> int:
    # examples() is a pure function of the documents, without a generator: its randomness comes from the texts
    return zlib.crc32(ids.tobytes())


def _other_pair(group: PairGroup, pair: int, rng: np.random.Generator) -> int:
    """Draw the pair whose LABEL serves as the false LABEL of `pair`: from another group of documents, other tokens.

    Its LABEL has the same length, or the nearest available length that fits the group, so the group stays as dense
    and lengths do not reveal the true pairs. Return `pair` itself if the window has no such LABEL.
    """
    pairs = group.pairs
    order, lengths = pairs.by_label_length
    length = int(pairs.end[pair] - pairs.middle[pair])
    max_length = length + group.width - int(pairs.lengths[pair])
    for distance in range(max(length, max_length - length + 1)):  # widen the range of lengths until it has a LABEL
        low, high = np.searchsorted(lengths, [length - distance, min(length + distance, max_length) + 1])
        numbers = order[low:high]
        candidates = numbers[(pairs.group[numbers] != pairs.group[pair]) & (pairs.label[numbers] != pairs.label[pair])]
        if len(candidates):
            return int(candidates[rng.integers(len(candidates))])
    return pair


def cut_pairs(documents: Sequence[TokenDocument], kind: PairKind, room: int) -> Pairs:
    """Cut a window into pairs of at most `room` tokens each; `PolyBatcher` describes what a pair is.

    Headings and empty segments are left out, as Devlin et al. (2018) leave out headers. Context segments are never a
    LABEL. If INPUT and LABEL together exceed `room` tokens, LABEL keeps its first tokens, at least half of `room` if
    it has that many, and INPUT keeps its last whole segments, or its last tokens if the last segment alone is too long.
    """
    # the empty segment makes bounds begin with 0, and a window without text no special case
    segments, owners, is_new, groups_of = [np.empty(0)], [], [], []
    groups: dict[str | int, int] = {}  # a document without a group is a group by itself
    for number, document in enumerate(documents):
        groups_of.append(groups.setdefault(document.group or number, len(groups)))
        numbers = [i for i, segment in enumerate(document.segments) if len(segment) and i not in document.headings]
        segments += [document.segments[i] for i in numbers]
        owners += [number] * len(numbers)
        is_new += [i >= document.context for i in numbers]
    ids = np.concatenate(segments, dtype=np.uint32, casting="unsafe")
    bounds = np.cumsum([len(segment) for segment in segments])  # segment s is ids[bounds[s] : bounds[s + 1]]
    owner = np.array(owners, dtype=np.int64)
    first_segment = np.searchsorted(owner, owner)  # the first segment of each segment's document
    labels = np.flatnonzero(np.array(is_new, dtype=bool) & (np.arange(len(owner)) > first_segment))
    if kind == "spans":
        inputs, labels, stops = _spans(ids, bounds, owner, labels, room)
    else:
        inputs, stops = (labels - 1 if kind == "sentences" else first_segment[labels]), labels + 1
    start, middle, end = bounds[inputs], bounds[labels], bounds[stops]
    # LABEL gets half of the room, and what INPUT leaves; INPUT gets the rest
    end = middle + np.minimum(end - middle, np.maximum(room // 2, room - (middle - start)))
    start = np.maximum(start, middle - (room - (end - middle)))
    # INPUT begins with a whole segment, unless the next one is LABEL's
    next_segment = bounds[np.searchsorted(bounds, start)]
    start = np.where(next_segment < middle, next_segment, start)
    return Pairs(ids, start, middle, end, owner[labels], np.array(groups_of, dtype=np.int64)[owner[labels]])


def _spans(
    ids: np.ndarray, bounds: np.ndarray, owner: np.ndarray, labels: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut spans of two or more consecutive segments that fill `room`: return first segment, LABEL's first, and end.

    The end of INPUT depends on the tokens. A single segment left over at the end of its document is in no pair.
    """
    spans = []
    _, firsts = np.unique(owner[labels], return_index=True)
    for label in labels[firsts]:
        begin, stop = label - 1, np.searchsorted(owner, owner[label], side="right")
        while begin + 1 < stop:
            fits = np.searchsorted(bounds[: stop + 1], bounds[begin] + room, side="right") - 1
            end = max(int(fits), begin + 2)
            split = _hash(ids[bounds[begin] : bounds[end]]) % (end - begin - 1)
            spans.append((begin, begin + 1 + split, end))
            begin = end
    inputs, labels, stops = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    return inputs, labels, stops


class NextHead(nn.Module):
    """Predict from h_0 whether LABEL is the true one: a linear layer, as for the score of the paper's Cross-encoder."""

    def __init__(self, hidden_size: int, std: float) -> None:
        super().__init__()
        self.score = nn.Linear(hidden_size, 1)
        initialise(self, std)

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        """Return the summed logistic loss of states [B, H] against targets int64 [B]; -100 adds none."""
        dtype = torch.promote_types(states.dtype, torch.float32)
        scores = self.score(states)[:, 0].to(dtype)
        # -100 is no label of this loss: it counts as 0 here and is masked below
        losses = F.binary_cross_entropy_with_logits(scores, targets.clamp(min=0).to(dtype), reduction="none")
        return losses.masked_fill(targets == IGNORED, 0.0).sum()


class PolyPretraining(Encoder):
    """The encoder (`trunk.`), BERT's head for masked tokens (`lm_head.`) and one for the next text (`next_head.`)."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        super().__init__()
        require_bidirectional(trunk)
        self.trunk, self.has_types = trunk, token_types(trunk) >= 2
        self.lm_head = LmHead(shape := shape_of(trunk))
        self.next_head = NextHead(shape.hidden_size, shape.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_types: Tensor,
        mlm_positions: Tensor,
        mlm_targets: Tensor,
        next_targets: Tensor,
    ) -> dict[str, Tensor]:
        """The arrays of `PolyBatcher` as tensors -> {"mlm": sum over masked tokens, "next": sum over pairs}.

        Both heads always run: under ZeRO-3 every rank must gather the same weights.
        """
        hidden = encode(self.trunk, input_ids, attention_mask, token_types if self.has_types else None)  # [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        return {
            "mlm": self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets),
            "next": self.next_head(hidden[:, 0], next_targets),
        }
