"""All the trainer knows of a method: documents become micro-batches, a micro-batch becomes summed losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Document = Sequence[np.ndarray]
"""Segments (sentences) of token ids, without special tokens."""


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
