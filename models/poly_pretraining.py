"""Poly-encoder pre-training (Humeau et al., 2020: "Poly-encoders", section 4.1): masked words, and what comes next.

    [CLS] INPUT [SEP] LABEL [SEP] --> encoder --> h --+--> h at masked positions --> mlm           in one batch,
                                                      +--> h_0 --> is LABEL the true one? --> next  in the other

A batch holds pairs of similar lengths, all for one of the two losses. Such a batch is an *example* here: a recipe has
`batch.micro: 1`, and an optimizer step takes as many of them as its `batch.size`.
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
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.blocks import pad_flat
from models.encoder import (
    TrunkModel,
    check_cls_sees_the_text,
    check_token_types,
    encode,
    initialise,
    select,
    shape_of,
    token_embedding,
)
from models.losses import IGNORED
from models.masking import Masking
from models.mlm import LmHead
from models.sentences import check_boundaries
from models.task import Document, MarkedDocument, MicroBatch, Vocabulary

Loss = Literal["mlm", "next"]
PairKind = Literal["sentences", "spans", "utterances"]
SPECIAL = 3  # tokens of a pair: [CLS] and two [SEP]
PADDING = 0.03  # the largest share of a group


@dataclass(frozen=True, eq=False)
class Pairs:
    """The true pairs of a window: pair i is INPUT `ids[start[i] : middle[i]]` and LABEL `ids[middle[i] : end[i]]`."""

    ids: np.ndarray  # uint32 [N]
    start: np.ndarray  # int64 [P], and so are the others
    middle: np.ndarray
    end: np.ndarray
    document: np.ndarray  # its number in the window
    whole: np.ndarray  # the same number for all documents that are parts of one

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 [P], special tokens included."""
        return self.end - self.start + SPECIAL

    @cached_property
    def by_label_length(self) -> tuple[np.ndarray, np.ndarray]:
        """The pairs' numbers, those with the shortest LABELs first, and the lengths of these LABELs: int64 [P] each."""
        lengths = self.end - self.middle
        order = np.argsort(lengths, kind="stable")
        return order, lengths[order]

    @cached_property
    def label(self) -> np.ndarray:
        """int64 [P], the same number for LABELs of the same tokens."""
        numbers: dict[bytes, int] = {}
        spans = zip(self.middle.tolist(), self.end.tolist(), strict=True)
        return np.array([numbers.setdefault(self.ids[m:e].tobytes(), len(numbers)) for m, e in spans])

    def hash(self, pair: int) -> int:
        """As `_hash`, of the pair's tokens."""
        return _hash(self.ids[self.start[pair] : self.end[pair]])


class Group(NamedTuple):
    """Pairs of similar lengths for one of the losses: an example."""

    loss: Loss
    pairs: Pairs  # all of the window
    rows: np.ndarray  # int64 [R], the numbers of those in the group, the longest first
    width: int


class PolyBatcher:
    """Documents -> groups of pairs -> micro-batch.

    Arrays: `input_ids` int64 [B, T], `attention_mask` bool [B, T] and `token_types` int64 [B, T]: 1 for LABEL and its
    [SEP]. Of the rows for `mlm`, the masked tokens as a flat list: `mlm_positions` int64 [M] into the flattened
    [B * T] and `mlm_targets` int64 [M], filled up with -100. `next_targets` int64 [B]: 1 where LABEL is the true one, 0
    where it is false, -100 in the rows for `mlm`. T and M hang on the groups' widths and numbers of rows alone.
    """

    def __init__(
        self, vocabulary: Vocabulary, max_tokens: int = 512, pairs: PairKind = "sentences", tokens: int = 32000
    ) -> None:
        """What a pair is, and how many make a group.

        Args:
            vocabulary: gives the special tokens.
            max_tokens: of a pair, special tokens included; at least 8. See `cut_pairs` for longer ones.
            pairs: `sentences`: a sentence and the next one. `spans`: consecutive sentences that fill `max_tokens` as
                far as whole ones do, parted somewhere. `utterances`: as many utterances before one as there is room
                for, and that one.
            tokens: the most in a group, padding included.

        Raises:
            ValueError: an option out of range.
        """
        if max_tokens < 8:
            raise ValueError(f"max_tokens must be at least 8, not {max_tokens}")
        if tokens < max_tokens:
            raise ValueError(f"tokens of a group must be at least max_tokens {max_tokens}, not {tokens}")
        if pairs not in ("sentences", "spans", "utterances"):
            raise ValueError(f'pairs must be "sentences", "spans" or "utterances", not {pairs!r}')
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        self.pairs: PairKind = pairs
        self.tokens = tokens
        self.masking = Masking(vocabulary)

    def examples(self, documents: Sequence[Document]) -> list[Group]:
        """The window's pairs by length, cut into groups; a pair is in one group, and so serves one of the losses.

        The groups stand in an order that is as good as random but hangs on the texts alone, and take turns with the
        losses; which of the two begins is as good as random too.

        Raises:
            ValueError: the documents are not divided into sentences.
        """
        check_boundaries(documents)
        pairs = cut_pairs(documents, self.pairs, self.max_tokens - SPECIAL)
        by_length = np.argsort(-pairs.lengths, kind="stable")
        cut = [(by_length[rows], width) for rows, width in self._cuts(pairs.lengths[by_length])]
        cut.sort(key=lambda group: pairs.hash(group[0][0]))
        # a false LABEL comes from another text
        losses: Sequence[Loss] = ("mlm", "next") if len(np.unique(pairs.whole)) > 1 else ("mlm",)
        begin = pairs.hash(cut[0][0][-1]) if cut else 0
        return [Group(losses[(begin + i) % len(losses)], pairs, rows, width) for i, (rows, width) in enumerate(cut)]

    def origins(self, documents: Sequence[Document]) -> list[list[int]]:
        """For each group the numbers of its pairs' documents; false LABELs, drawn later, may be of any other."""
        return [np.unique(group.pairs.document[group.rows]).tolist() for group in self.examples(documents)]

    def micro_batch(self, examples: Sequence[Group], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Mask each group, or draw its false LABELs, with its own rng; pad all to the widest."""
        width = max(group.width for group in examples)
        made: list[dict[str, np.ndarray]] = []
        rows = 0
        for group, rng in zip(examples, rngs, strict=True):
            made.append(self._masked(group, width, rng) if group.loss == "mlm" else self._drawn(group, width, rng))
            made[-1]["mlm_positions"] += rows * width
            rows += len(group.rows)
        arrays = {name: np.concatenate([each[name] for each in made]) for name in made[0]}
        counts = {loss: int((arrays[f"{loss}_targets"] != IGNORED).sum()) for loss in ("mlm", "next")}
        return MicroBatch(arrays, counts)

    def _cuts(self, lengths: np.ndarray) -> Iterator[tuple[slice, int]]:
        """Where to cut pairs, the longest first, and to what width: as few groups as `tokens` and PADDING allow."""
        first = 0
        while first < len(lengths):
            width = self._width(int(lengths[first]))
            some = lengths[first : first + self.tokens // width]
            # as lengths only fall, the share of padding only grows
            dense = np.cumsum(some) >= (1 - PADDING) * width * np.arange(1, len(some) + 1)
            yield slice(first, first + dense.sum()), width
            first += int(dense.sum())

    def _width(self, longest: int) -> int:
        """Rounded up by less than 1/32, within PADDING: few widths mean few kernel shapes."""
        step = 1 << max(0, longest.bit_length() - 6)
        return min(-(-longest // step) * step, self.max_tokens)

    def _masked(self, group: Group, width: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The arrays of a group for `mlm`: true pairs, 15 % of all their tokens masked."""
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

    def _drawn(self, group: Group, width: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The arrays of a group for `next`: unmasked, the LABEL of every second pair, on average, false."""
        labels = group.rows.copy()
        for row in np.flatnonzero(rng.random(len(labels)) < 0.5):
            labels[row] = _stranger(group, int(group.rows[row]), rng)
        return self._rows(group, labels, width) | {
            "mlm_positions": np.zeros(1, dtype=np.int64),  # none, but no kernel is to meet an empty array
            "mlm_targets": np.full(1, IGNORED),
            "next_targets": (labels == group.rows).astype(np.int64),
        }

    def _rows(self, group: Group, labels: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """`[CLS] INPUT [SEP] LABEL [SEP]`, padded: the INPUT of the group's pairs, the LABEL of pairs `labels` [R]."""
        pairs, v = group.pairs, self.vocabulary
        start, middle = pairs.start[group.rows, None], pairs.middle[group.rows, None]
        label, end = pairs.middle[labels, None], pairs.end[labels, None]
        inner = middle - start + 1  # the place of the [SEP] between, [R, 1]
        last = inner + end - label + 1
        at = np.arange(width)
        source = np.where(at < inner, start - 1, label - inner - 1) + at  # [R, T], into the window's ids
        ids = pairs.ids[source.clip(0, len(pairs.ids) - 1)].astype(np.int64)
        ids[:, 0] = v.cls
        ids[(at == inner) | (at == last)] = v.sep
        ids[at > last] = v.pad
        types = ((at > inner) & (at <= last)).astype(np.int64)
        return {"input_ids": ids, "attention_mask": at <= last, "token_types": types}


def _hash(ids: np.ndarray) -> int:
    """A number as good as drawn at random, that hangs on the tokens alone."""
    return zlib.crc32(ids.tobytes())


def _stranger(group: Group, pair: int, rng: np.random.Generator) -> int:
    """The pair whose LABEL is to be the false one of `pair`: of no part of the same text, and of other tokens.

    It is drawn from those with as long a LABEL, or next to it where there are none, but not too long for the group: so
    the group stays as dense, and lengths do not tell what is true. `pair` itself where the window has no such LABEL.
    """
    pairs = group.pairs
    order, lengths = pairs.by_label_length
    length = int(pairs.end[pair] - pairs.middle[pair])
    longest = length + group.width - int(pairs.lengths[pair])
    for more in range(max(length, longest - length + 1)):
        low, high = np.searchsorted(lengths, [length - more, min(length + more, longest) + 1])
        near = order[low:high]
        others = near[(pairs.whole[near] != pairs.whole[pair]) & (pairs.label[near] != pairs.label[pair])]
        if len(others):
            return int(others[rng.integers(len(others))])
    return pair


def cut_pairs(documents: Sequence[Document], kind: PairKind, room: int) -> Pairs:
    """The pairs of a window, of at most `room` tokens each; see `PolyBatcher` for what a pair is.

    Headings and empty segments are left out, as Devlin et al. (2018) leave out headers. What is only context is never
    a LABEL. Where INPUT and LABEL have more than `room` tokens, LABEL keeps its first, at least half of `room` if it
    has as many, and INPUT its last: whole segments, unless the last one alone has more.
    """
    segments, of, new, wholes_of = [np.empty(0)], [], [], []
    wholes: dict[str | int, int] = {}  # a document that is a part of nothing stands for itself
    for number, document in enumerate(documents):
        marked = document if isinstance(document, MarkedDocument) else MarkedDocument(document)
        wholes_of.append(wholes.setdefault(marked.whole or number, len(wholes)))
        kept = [i for i, segment in enumerate(document) if len(segment) and i not in marked.headings]
        segments += [document[i] for i in kept]
        of += [number] * len(kept)
        new += [i >= marked.context for i in kept]
    ids = np.concatenate(segments, dtype=np.uint32, casting="unsafe")
    bounds = np.cumsum([len(segment) for segment in segments])  # segment s is ids[bounds[s] : bounds[s + 1]]
    owner = np.array(of, dtype=np.int64)
    first = np.searchsorted(owner, owner)  # the first segment of each segment's document
    labels = np.flatnonzero(np.array(new, dtype=bool) & (np.arange(len(owner)) > first))
    if kind == "spans":
        inputs, labels, stops = _spans(ids, bounds, owner, labels, room)
    else:
        inputs, stops = (labels - 1 if kind == "sentences" else first[labels]), labels + 1
    start, middle, end = bounds[inputs], bounds[labels], bounds[stops]
    end = middle + np.minimum(end - middle, np.maximum(room // 2, room - (middle - start)))
    start = np.maximum(start, middle - (room - (end - middle)))
    whole = bounds[np.searchsorted(bounds, start)]
    start = np.where(whole < middle, whole, start)
    return Pairs(ids, start, middle, end, owner[labels], np.array(wholes_of, dtype=np.int64)[owner[labels]])


def _spans(
    ids: np.ndarray, bounds: np.ndarray, owner: np.ndarray, labels: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Consecutive segments that fill `room`, at least two: the first, the first of LABEL and the one after the last.

    Where INPUT ends hangs on the tokens. A segment left alone at the end of its document is in no pair.
    """
    found = []
    _, firsts = np.unique(owner[labels], return_index=True)
    for label in labels[firsts]:
        begin, stop = label - 1, np.searchsorted(owner, owner[label], side="right")
        while begin + 1 < stop:
            fits = np.searchsorted(bounds[: stop + 1], bounds[begin] + room, side="right") - 1
            after = max(int(fits), begin + 2)
            parted = _hash(ids[bounds[begin] : bounds[after]]) % (after - begin - 1)
            found.append((begin, begin + 1 + parted, after))
            begin = after
    inputs, labels, stops = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return inputs, labels, stops


class NextHead(nn.Module):
    """Whether LABEL is the true one, of h_0: a linear layer, as for the score of the paper's Cross-encoder."""

    def __init__(self, hidden_size: int, std: float) -> None:
        """`std` of the initial weights."""
        super().__init__()
        self.score = nn.Linear(hidden_size, 1)
        initialise(self, std)

    def forward(self, first: Tensor, targets: Tensor) -> Tensor:
        """Summed logistic loss of first [B, H] against targets int64 [B]; -100 counts nothing."""
        dtype = torch.promote_types(first.dtype, torch.float32)
        scores = self.score(first)[:, 0].to(dtype)
        losses = F.binary_cross_entropy_with_logits(scores, targets.clamp(min=0).to(dtype), reduction="none")
        return losses.masked_fill(targets == IGNORED, 0.0).sum()


class PolyPretraining(TrunkModel):
    """The encoder (`trunk.`), BERT's head for masked tokens (`lm_head.`) and one for the next text (`next_head.`)."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        """`trunk` as `models.encoder.build_trunk` makes it.

        Raises:
            ValueError: it is causal, has no two token types, or no `models.encoder.Shape`.
        """
        super().__init__()
        check_cls_sees_the_text(trunk)
        check_token_types(trunk)
        self.trunk = trunk
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

        Both heads run whatever there is to learn: under ZeRO-3 every rank must gather the same weights.
        """
        hidden = encode(self.trunk, input_ids, attention_mask, token_types)  # [B, T, H]
        embedding = token_embedding(self.trunk)  # [V, H]
        return {
            "mlm": self.lm_head(select(hidden, mlm_positions), embedding, mlm_targets),
            "next": self.next_head(hidden[:, 0], next_targets),
        }
