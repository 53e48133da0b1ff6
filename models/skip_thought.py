"""Skip-Thought (Kiros et al., 2015) with Transformers: from a sentence's vector, write the sentences around it.

    s_i --> encoder --> h_0 --+--> a decoder writes s_{i-1} --> previous
                              +--> a decoder writes s_{i+1} --> next

A baseline of the Cross-Thought paper (section 4.3), whose words are these: an encoder and decoder "without considering
attention across sequences", a "6-layer Transformer as the decoder". h_0 stands in the first slot of a decoder; the
states of the encoder's other tokens are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from models.blocks import pad, scatter
from models.encoder import (
    TrunkModel,
    check_cls_sees_the_text,
    encode,
    max_positions,
    select,
    shape_of,
    token_embedding,
)
from models.losses import linear_cross_entropy
from models.next_tokens import next_tokens
from models.seed_decoder import WeakDecoder
from models.sentences import check_boundaries, frame, sentences
from models.task import Document, MicroBatch, Vocabulary, of_another


class Neighbours(NamedTuple):
    """A sentence and those beside it (token ids); before the first and after the last there is `None`."""

    previous: np.ndarray | None
    sentence: np.ndarray
    next: np.ndarray | None


class SkipThoughtBatcher:
    """Documents -> sentences with their neighbours -> micro-batch.

    Arrays: `input_ids` int64 [B, T] and `attention_mask` bool [B, T], the sentences; and for both neighbours
    `previous_ids` int64 [B, T'], which the decoder reads, `previous_positions` int64 [N] into the flattened [B * T']
    and `previous_targets` int64 [N], as in `models.next_tokens`; `next_...` alike. A neighbour ends with [SEP], a
    target like any other. Where there is no neighbour the row has no targets.
    """

    def __init__(self, vocabulary: Vocabulary, max_tokens: int = 64) -> None:
        """A sentence has at most `max_tokens` tokens, [CLS] and [SEP] included; a longer one is cut into several."""
        if max_tokens < 3:
            raise ValueError(f"max_tokens must be at least 3 ([CLS], a token, [SEP]), not {max_tokens}")
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens

    def examples(self, documents: Sequence[Document]) -> list[Neighbours]:
        """The sentences of all documents that have more than one, headings left out.

        Raises:
            ValueError: the documents are not divided into sentences.
        """
        check_boundaries(documents)
        return [example for _, example in self._numbered(documents)]

    def origins(self, documents: Sequence[Document]) -> list[list[int]]:
        """Each sentence and its neighbours are of one document."""
        return [[number] for number, _ in self._numbered(documents)]

    def micro_batch(self, examples: Sequence[Neighbours], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Frame and pad the sentences and their neighbours; nothing is left to chance, the rngs are not used."""
        input_ids, attention_mask = self._pad([frame(e.sentence, self.vocabulary) for e in examples])
        arrays = {"input_ids": input_ids, "attention_mask": attention_mask}
        counts = {}
        for name in ("previous", "next"):
            rows = [self._target(getattr(example, name)) for example in examples]
            ids, _ = self._pad(rows)
            positions, targets, counts[name] = next_tokens(rows, ids.shape[1])
            arrays |= {f"{name}_ids": ids, f"{name}_positions": positions, f"{name}_targets": targets}
        return MicroBatch(arrays, counts)

    def _numbered(self, documents: Sequence[Document]) -> list[tuple[int, Neighbours]]:
        """All examples with the numbers of their documents, in an order that parts those of one document."""
        found = []
        for number, document in enumerate(documents):
            texts, context = sentences(document, self.max_tokens - 2)
            found += [(number, example) for example in _neighbours(texts, context)]
        return scatter(found)

    def _target(self, neighbour: np.ndarray | None) -> np.ndarray:
        """What a decoder reads and writes; [CLS] alone, which predicts nothing, where there is no neighbour."""
        return np.array([self.vocabulary.cls]) if neighbour is None else frame(neighbour, self.vocabulary)

    def _pad(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return pad(rows, self.max_tokens, self.vocabulary.pad)


def _neighbours(texts: Sequence[np.ndarray], context: int) -> Iterator[Neighbours]:
    """Every sentence that has a neighbour; of two that are both context, another document makes neighbours."""
    for i, text in enumerate(texts):
        previous = texts[i - 1] if i > 0 and i >= context else None
        following = texts[i + 1] if context <= i + 1 < len(texts) else None
        if previous is not None or following is not None:
            yield Neighbours(previous, text, following)


class SkipThought(TrunkModel):
    """The encoder (`trunk.`) and a decoder for each side (`previous_decoder.`, `next_decoder.`).

    The decoders have no parameter in common but the token embedding, which is the trunk's: their input and output.
    """

    bottleneck_terms = ("previous", "next")

    def __init__(self, trunk: PreTrainedModel, decoder_layers: int = 6) -> None:
        """The decoders have the trunk's shape: `models.seed_decoder.WeakDecoder` with the whole past in sight.

        Args:
            trunk: as `models.encoder.build_trunk` makes it.
            decoder_layers: of each decoder, at least 1; the Cross-Thought paper's 6.

        Raises:
            ValueError: an option out of range, or a trunk that is causal or has no `models.encoder.Shape`.
        """
        super().__init__()
        if decoder_layers < 1:
            raise ValueError(f"decoder_layers must be at least 1, not {decoder_layers}")
        shape = shape_of(trunk)
        check_cls_sees_the_text(trunk)
        self.trunk = trunk
        positions = max_positions(trunk)
        self.previous_decoder = WeakDecoder(shape, positions, decoder_layers, window="all", variant="paper")
        self.next_decoder = WeakDecoder(shape, positions, decoder_layers, window="all", variant="paper")

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        previous_ids: Tensor,
        previous_positions: Tensor,
        previous_targets: Tensor,
        next_ids: Tensor,
        next_positions: Tensor,
        next_targets: Tensor,
        swap: bool = False,
    ) -> dict[str, Tensor]:
        """The arrays of `SkipThoughtBatcher` as tensors -> {"previous", "next": the sums over their tokens}.

        With `swap` the decoders read the vector of another sentence (`models.task.Bottleneck`).
        """
        sentence = encode(self.trunk, input_ids, attention_mask)[:, 0]  # h_0 [B, H]
        sentence = of_another(sentence) if swap else sentence
        embedding = token_embedding(self.trunk)  # [V, H]
        before = self.previous_decoder(sentence, previous_ids, embedding)  # [B, T', H]
        after = self.next_decoder(sentence, next_ids, embedding)
        return {
            "previous": linear_cross_entropy(select(before, previous_positions), embedding, None, previous_targets),
            "next": linear_cross_entropy(select(after, next_positions), embedding, None, next_targets),
        }
