"""All the trainer knows of a method: documents become micro-batches, a micro-batch becomes summed losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # loader workers do without torch
    from torch import Tensor

Document = Sequence[np.ndarray]
"""Segments (sentences) of token ids, without special tokens; a `MarkedDocument` where more is known of them."""


class MarkedDocument(list[np.ndarray]):
    """A document of which more is known than its segments.

    Args:
        segments: as of any document.
        headings: the numbers of those that are headings.
        context: how many leading ones are only context, as the utterances before a reply in the midst of a dialogue:
            they are new in another document.
        whole: what it is a part of, as other documents may be: a long book, a thread with many replies; "" for nothing.
    """

    def __init__(
        self, segments: Iterable[np.ndarray], headings: Iterable[int] = (), context: int = 0, whole: str = ""
    ) -> None:
        super().__init__(segments)
        self.headings = frozenset(headings)
        self.context = context
        self.whole = whole


@dataclass(frozen=True)
class Vocabulary:
    """How many token ids there are, and which of them are the special tokens.

    Raises:
        ValueError: a special id lies outside the vocabulary, or two special tokens share an id.
    """

    vocab_size: int
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    def __post_init__(self) -> None:
        """Refuse ids that no embedding table of `vocab_size` rows could hold."""
        if len(set(self.special)) < len(self.special) or not all(0 <= i < self.vocab_size for i in self.special):
            raise ValueError(f"special token ids must differ and lie below vocab_size: {self}")

    @property
    def special(self) -> tuple[int, ...]:
        """The ids that are never masked and never drawn as a random replacement."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)


class MicroBatch(NamedTuple):
    """What one forward pass takes, and how many targets each of its losses sums over."""

    arrays: dict[str, np.ndarray]
    counts: dict[str, int]

    @property
    def tokens(self) -> int:
        """Tokens that are no padding, by the masks among the arrays (named `..._mask`)."""
        return sum(int(array.sum()) for name, array in self.arrays.items() if name.endswith("_mask"))

    @property
    def slots(self) -> int:
        """Places for tokens, padding included."""
        return sum(array.size for name, array in self.arrays.items() if name.endswith("_mask"))


class Batcher(Protocol):
    """Documents -> examples -> micro-batch, in numpy; runs in loader workers.

    A model beside it is an `nn.Module` whose `forward(**arrays as tensors)` returns a dict with the keys of
    `counts`: for each a scalar SUM of losses (fp32), never a mean. The trainer divides by global counts.
    """

    def examples(self, documents: Sequence[Any]) -> list[Any]:
        """Cut one shuffled window of documents into examples; a pure function of the documents."""
        ...

    def origins(self, documents: Sequence[Any]) -> list[list[int]]:
        """For each of `examples(documents)`, the numbers of the documents that it was cut from."""
        ...

    def micro_batch(self, examples: Sequence[Any], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Make the arrays of one forward pass; a pure function of the examples and their rngs, one each.

        Each rng is to be used before the next is taken: they may be one generator, set anew.
        """
        ...


@runtime_checkable
class Bottleneck(Protocol):
    """A model some of whose losses know a sequence by one vector of it, and which shows what that vector is worth.

    With `swap=True`, `forward` sums the same losses over the same targets, but the `bottleneck_terms` among them read
    the vector of another sequence (`of_another`) in the place of their own; the other terms are unchanged. By how much
    such a term rises, in nats a target, is what the vector tells of its sequence: 0 where nothing reads it.

    A keyword of `forward`, not a method of its own: under ZeRO-3 the parameters are there inside `forward` only, and
    gathered fastest where its modules run in the same order every time.
    """

    bottleneck_terms: tuple[str, ...]

    def forward(self, *args: Any, swap: bool = False, **arrays: Any) -> dict[str, Tensor]:
        """The arrays of a micro-batch as tensors -> the summed losses, with each sequence's own vector or another's."""
        ...


def of_another(vectors: Tensor) -> Tensor:
    """For each sequence of a micro-batch, the vector of another of its sequences: [B, ...] -> [B, ...].

    Half the micro-batch away, for neighbours are often cut from one document. A single sequence keeps its own.
    """
    return vectors.roll(len(vectors) // 2, dims=0)
