"""The contract between a method and the trainer: a batcher turns documents into micro-batches, a model returns losses.

A method has three classes, in one file: its configuration (`models.config.MethodConfig`), its batcher (`Batcher`) and
its model (`models.trunk.TrunkModel`). The batcher makes the arrays of one forward pass, a `MicroBatch`. The model's
`forward(**arrays as tensors)` returns a dict with the keys of `MicroBatch.counts`: for each loss term a scalar SUM over
its targets, in fp32, never a mean. The trainer divides it by the number of targets of all ranks and micro-batches.

The suffix of an array's name has a meaning:

- `…_ids`: token ids. `trainer.trace` decodes them, and the figure `trainer.analyse wiring` replaces them one by one.
- `…_mask`: bool, true in the slots that are not padding; a run computes its reported share of padding from them.
- `…_targets`: the targets, `IGNORED` where there is none. The figure shows one row for each: a token where there is a
  `…_positions` of the same name, else false or true.
- `…_positions`: int64, the slots, in flattened order, where the targets are predicted.
- `allowed`: bool [Q, D], for a softmax over the micro-batch's documents: true where query q is compared with
  document d. The figure shows one row for each query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # only annotations need torch: batchers use numpy
    from torch import Tensor

IGNORED = -100
"""The target at a position without a prediction, as in `torch.nn.functional.cross_entropy`."""


class TokenDocument(Protocol):
    """A text as token ids, which a batcher reads and never changes."""

    @property
    def segments(self) -> Sequence[np.ndarray]:
        """Sentences, paragraphs or utterances: token ids of any integer type, no special tokens; may be empty."""

    @property
    def headings(self) -> Collection[int]:
        """The numbers of the segments that are headings."""

    @property
    def context(self) -> int:
        """How many leading segments are only context: another document of the thread has them as new utterances."""

    @property
    def group(self) -> str:
        """The book, thread or page that this document is part of, or "" if it is a whole text."""


class Prompt(Protocol):
    """A text that is put before other texts."""

    @property
    def ids(self) -> tuple[int, ...]:
        """Its ids alone."""

    def before(self, tokens: np.ndarray) -> np.ndarray:
        """Return the ids, int64, of the prompt and a text together, given those of the text alone."""

    def fitting(self, tokens: np.ndarray, max_tokens: int) -> np.ndarray:
        """Return a text's first tokens, as many as have at most `max_tokens` ids together with the prompt."""


class Vocabulary(Protocol):
    """What a batcher needs to know about a tokenizer: the number of token ids, the special tokens, its frames.

    A special token is None where the tokenizer has none; a batcher that needs it says so (`require_roles`).
    """

    @property
    def vocab_size(self) -> int:
        """The number of ids; all are below it."""

    @property
    def pad(self) -> int:
        """[PAD], or another special token that pads."""

    @property
    def cls(self) -> int | None:
        """[CLS], or another token that begins a text."""

    @property
    def sep(self) -> int | None:
        """[SEP], or another token that ends a text."""

    @property
    def mask(self) -> int | None:
        """[MASK]."""

    @property
    def text_frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that the tokenizer puts before and after a text, often one each: in BERT [CLS] and [SEP]."""

    @property
    def pair_frame(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The ids that it puts before, between and after two texts: in BERT [CLS], [SEP] and [SEP]."""

    @property
    def special(self) -> tuple[int, ...]:
        """All special ids, [UNK] among them: never masked and never drawn as a random replacement."""

    @property
    def punctuation(self) -> tuple[int, ...]:
        """The ids of the tokens that consist of punctuation only."""

    @property
    def stop_words(self) -> tuple[int, ...]:
        """The ids of the tokens that are stop words or punctuation."""

    @property
    def words(self) -> tuple[int, ...]:
        """The ids of the tokens that are whole words."""

    def prompt(self, text: str) -> Prompt:
        """Return what puts a prompt before texts; raise ValueError where the tokens' texts are not known."""


Role = Literal["cls", "sep", "mask"]
NAMES = {"cls": "a token before a text ([CLS])", "sep": "a token after a text ([SEP])", "mask": "a mask token ([MASK])"}


def required(vocabulary: Vocabulary, role: Role) -> int:
    """Return the id of a special token; raise ValueError where the tokenizer has none."""
    token: int | None = getattr(vocabulary, role)
    if token is None:
        raise ValueError(
            f"it needs {NAMES[role]}, which the tokenizer of the data does not have: choose another method, or a "
            "tokenizer like BERT's or RoBERTa's"
        )
    return token


def require_roles(vocabulary: Vocabulary, *roles: Role) -> None:
    """Refuse a tokenizer that lacks a special token; raise ValueError, naming the first missing one."""
    for role in roles:
        required(vocabulary, role)


class Corpus(Protocol):
    """Documents by number, as token ids without special tokens."""

    def tokens(self, i: int) -> np.ndarray:
        """Return the ids of document i."""


class MicroBatch(NamedTuple):
    """The arrays of one forward pass, the number of targets of each loss term, and how much text the model reads."""

    arrays: dict[str, np.ndarray]
    counts: dict[str, int]
    tokens: int  # text tokens in all inputs of the model, without special tokens and padding

    @property
    def slots(self) -> int:
        """The number of slots for tokens, padding included: the size of the arrays named `…_mask`."""
        return sum(array.size for name, array in self.arrays.items() if name.endswith("_mask"))

    @property
    def filled(self) -> int:
        """The number of slots that are not padding."""
        return sum(int(array.sum()) for name, array in self.arrays.items() if name.endswith("_mask"))


class Batcher(Protocol):
    """Documents -> examples -> micro-batch, in numpy.

    A batcher runs in loader workers: processes forked from a rank, which share its memory pages, including torch's.
    """

    def examples(self, documents: Sequence[Any]) -> list[Any]:
        """Cut a shuffled window of documents into examples; a pure function of the documents.

        Raises:
            ValueError: the documents do not suit the method.
        """

    def origins(self, documents: Sequence[Any]) -> list[list[int]]:
        """Return, for each of `examples(documents)`, the numbers of the documents that it was cut from."""

    def micro_batch(self, examples: Sequence[Any], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Make the arrays of one forward pass; a pure function of the examples and their rngs, one for each.

        Finish with each rng before taking the next: they may be the same generator, re-keyed.
        """


@runtime_checkable
class Bottleneck(Protocol):
    """A model with loss terms that see a sequence only through one vector, and that can measure how much it helps.

    With `swap=True`, `forward` sums the same losses over the same targets, but its `bottleneck_terms` read the vector
    of another sequence (`swap_vectors`) instead of their own; the other terms stay the same. The increase of such a
    term, in nats per target, measures what the vector tells about its sequence: 0 if nothing reads it.

    `swap` is an argument of `forward`, not a second method: under ZeRO-3 the parameters exist only inside `forward`,
    and are gathered fastest if its modules always run in the same order.
    """

    bottleneck_terms: tuple[str, ...]

    def forward(self, *args: Any, swap: bool = False, **arrays: Any) -> dict[str, Tensor]:
        """The arrays of a micro-batch as tensors -> the summed losses, with each sequence's own vector or another's."""


def swap_vectors(vectors: Tensor) -> Tensor:
    """Give each sequence the vector of another sequence of its micro-batch: [B, ...] -> [B, ...].

    The other sequence is half the micro-batch away, because neighbours are often cut from one document. A single
    sequence keeps its own vector.
    """
    return vectors.roll(len(vectors) // 2, dims=0)
