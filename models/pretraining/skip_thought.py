"""Skip-Thought (Kiros et al., 2015) with Transformers: predict the neighbours of a sentence from its vector.

    s_i --> encoder --> h_0 --+--> a decoder predicts s_{i-1} --> previous
                              +--> a decoder predicts s_{i+1} --> next

A baseline of the Cross-Thought paper (section 4.3), which describes it as an encoder and decoder "without considering
attention across sequences", a "6-layer Transformer as the decoder". h_0 is the first slot of a decoder; a decoder does
not see the states of the encoder's other tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.packing import frame, pad, spread, text_tokens
from deepsiam.models.batching.sentences import SentenceBatcher, sentences
from deepsiam.models.batching.targets import next_tokens
from deepsiam.models.encode import encode
from deepsiam.models.interface import Batcher, MicroBatch, TokenDocument, Vocabulary, require_roles, swap_vectors
from deepsiam.models.layers.losses import linear_cross_entropy
from deepsiam.models.layers.pooling import select
from deepsiam.models.layers.shape import shape_of
from deepsiam.models.pretraining.config import InputConfig
from deepsiam.models.pretraining.seed_decoder import WeakDecoder
from deepsiam.models.trunk import Encoder, max_positions, require_bidirectional, token_embedding


class SkipThoughtConfig(InputConfig):
    """Skip-Thought: from a sentence's vector, two decoders predict the sentences before and after it."""

    loss_terms = ("previous", "next")

    name: Literal["skip_thought"]
    max_tokens: int = Field(64, ge=8)
    decoder_layers: PositiveInt = 6

    def batcher(self, vocabulary: Vocabulary) -> Batcher:
        return SkipThoughtBatcher(self, vocabulary)

    def model(self, trunk: PreTrainedModel) -> Encoder:
        return SkipThought(trunk, self)


class Neighbours(NamedTuple):
    """A sentence and its neighbours (token ids); `None` before the first and after the last."""

    previous: np.ndarray | None
    sentence: np.ndarray
    next: np.ndarray | None


class SkipThoughtBatcher(SentenceBatcher[Neighbours]):
    """Documents -> sentences with their neighbours -> micro-batch.

    Arrays: `input_ids` int64 [B, T] and `attention_mask` bool [B, T], the sentences; and for both neighbours
    `previous_ids` int64 [B, T'], which the decoder reads, `previous_positions` int64 [N] into the flattened [B * T']
    and `previous_targets` int64 [N], as in `models.batching.targets`; `next_...` likewise. A neighbour ends with
    [SEP], a target like any other token. The row of a missing neighbour has no targets.
    """

    def __init__(self, keys: SkipThoughtConfig, vocabulary: Vocabulary) -> None:
        """Cut sentences of more than `max_tokens` tokens, [CLS] and [SEP] included, into several."""
        require_roles(vocabulary, "cls", "sep")
        self.keys, self.vocabulary = keys, vocabulary

    def micro_batch(self, examples: Sequence[Neighbours], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Frame and pad the sentences and their neighbours; the rngs are not used."""
        v = self.vocabulary
        sentences = [frame(example.sentence, v) for example in examples]
        input_ids, attention_mask = self._pad(sentences)
        arrays = {"input_ids": input_ids, "attention_mask": attention_mask}
        counts, tokens = {}, text_tokens(sentences, v)
        for name in ("previous", "next"):
            neighbours = [getattr(example, name) for example in examples]
            # in the place of a missing neighbour [CLS] alone, which has no next token, so no targets
            rows = [np.array([v.cls]) if ids is None else frame(ids, v) for ids in neighbours]
            tokens += text_tokens(rows, v)
            ids, _ = self._pad(rows)
            positions, targets, counts[name] = next_tokens(rows, ids.shape[1])
            arrays |= {f"{name}_ids": ids, f"{name}_positions": positions, f"{name}_targets": targets}
        return MicroBatch(arrays, counts, tokens)

    def numbered(self, documents: Sequence[TokenDocument]) -> list[tuple[int, Neighbours]]:
        room = self.keys.max_tokens - sum(map(len, self.vocabulary.text_frame))
        examples: list[tuple[int, Neighbours]] = []
        for number, document in enumerate(documents):
            texts, context = sentences(document, room)
            examples += [(number, example) for example in _neighbours(texts, context)]
        return spread(examples)

    def _pad(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return pad(rows, self.keys.max_tokens, self.vocabulary.pad)


def _neighbours(texts: Sequence[np.ndarray], context: int) -> Iterator[Neighbours]:
    """Yield every sentence that has a neighbour; two context sentences count as neighbours only in another document."""
    for i, text in enumerate(texts):
        previous_text = texts[i - 1] if i > 0 and i >= context else None
        next_text = texts[i + 1] if context <= i + 1 < len(texts) else None
        if previous_text is not None or next_text is not None:
            yield Neighbours(previous_text, text, next_text)


class SkipThought(Encoder):
    """The encoder (`trunk.`) and a decoder for each side (`previous_decoder.`, `next_decoder.`).

    The decoders share only the trunk's token embedding, which is their input embedding and output projection.
    """

    bottleneck_terms = ("previous", "next")

    def __init__(self, trunk: PreTrainedModel, keys: SkipThoughtConfig) -> None:
        super().__init__()
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        self.trunk = trunk
        positions = max_positions(trunk)
        layers = keys.decoder_layers
        # SEED's decoder without its window: h_0 replaces slot 0, and every slot attends to all before it
        self.previous_decoder = WeakDecoder(shape, positions, layers, window="all", variant="paper")
        self.next_decoder = WeakDecoder(shape, positions, layers, window="all", variant="paper")

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

        With `swap` the decoders read the vector of another sentence (`models.interface.Bottleneck`).
        """
        sentence = encode(self.trunk, input_ids, attention_mask)[:, 0]  # h_0 [B, H]
        sentence = swap_vectors(sentence) if swap else sentence
        embedding = token_embedding(self.trunk)  # [V, H]
        h_previous = self.previous_decoder(sentence, previous_ids, embedding)  # [B, T', H]
        h_next = self.next_decoder(sentence, next_ids, embedding)
        return {
            "previous": linear_cross_entropy(select(h_previous, previous_positions), embedding, None, previous_targets),
            "next": linear_cross_entropy(select(h_next, next_positions), embedding, None, next_targets),
        }
