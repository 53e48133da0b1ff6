"""Cross-Thought's fine-tuning (Wang et al., 2020, section 3.3) with the pre-trained cross-sequence Transformer.

    cross_thought_answers   how much the special tokens of a question attend to those of a passage    eq. 7, 10
    cross_thought_pairs     their states, after those of two texts attended to each other             eq. 4, 11

Every text is encoded separately, with its special tokens, as in pre-training. `cross.` has the same parameter names as
in a Cross-Thought run, so `init_from` loads it too. The paper's third way, inner products of embeddings, is a Siamese
network with the same number of `special_tokens`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from transformers import PreTrainedModel

from deepsiam.models.batching.framing import PairFraming
from deepsiam.models.batching.packing import frame, pad
from deepsiam.models.config import Side
from deepsiam.models.encode import as_rows, encode, insert_special_tokens
from deepsiam.models.interface import Vocabulary
from deepsiam.models.layers.shape import Shape, initialise, shape_of
from deepsiam.models.layers.transformer import TransformerLayer
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderConfig
from deepsiam.models.matching.pair_model import PairModel, PairModelConfig
from deepsiam.models.trunk import require_bidirectional
from deepsiam.models.vectors import Vectors


class SpecialTokensConfig(MatchingConfig):
    """The keys of both models."""

    special_tokens: PositiveInt = 5  # [CLS] and the tokens that pre-training added

    @property
    def added_tokens(self) -> int:
        return self.special_tokens - 1


class CrossThoughtAnswersConfig(DualEncoderConfig, SpecialTokensConfig):
    """The keys of answer selection: a question's passages are its relevant passage and its own negatives."""

    name: Literal["cross_thought_answers"]
    loss: Literal["softmax"] = "softmax"
    negatives: Literal["own"] = "own"
    learn_temperature: Literal[False] = False
    towers: Literal[1] = 1

    @model_validator(mode="after")
    def _attention_has_no_temperature(self) -> CrossThoughtAnswersConfig:
        if self.temperature != 1:
            raise ValueError("method.temperature is not for cross_thought_answers: leave it out")
        return self

    def model(self, trunk: PreTrainedModel) -> CrossThoughtAnswers:
        return CrossThoughtAnswers(trunk, self)


class CrossThoughtPairsConfig(PairModelConfig, SpecialTokensConfig):
    """The keys of pair classification."""

    name: Literal["cross_thought_pairs"]
    loss: Literal["classes"] = "classes"

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        return SequencesFraming(self.query_framing(vocabulary), self.document_framing(vocabulary))

    def model(self, trunk: PreTrainedModel) -> CrossThoughtPairs:
        return CrossThoughtPairs(trunk, self)


@dataclass(frozen=True)
class SequencesFraming(PairFraming):
    """A query and a document become two sequences, each framed by itself."""

    def arrays(self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Make the arguments of `score_pairs`: `ids` int64, `mask` bool, and `types` int64, 1 in row 1; [P, 2, T]."""
        vocabulary = self.query.vocabulary
        pairs = [self.cut(query, document) for query, document in zip(queries, documents, strict=True)]
        rows = [frame(text, vocabulary) for pair in pairs for text in pair]
        ids, mask = pad(rows, max(self.query.max_tokens, self.document.max_tokens), vocabulary.pad)
        shape = (len(pairs), 2, -1)
        types = np.broadcast_to(np.array([[0], [1]]), (len(pairs), 2, ids.shape[1]))
        return {"ids": ids.reshape(shape), "mask": mask.reshape(shape), "types": types * mask.reshape(shape)}


class CrossThoughtAnswers(DualEncoder):
    """Rank passages by α[0] of equation 10, the attention of a question, X_0, in the cross-sequence Transformer.

    The softmax runs over all sequences, separately for each head and special token; its mean over these is the weight
    of a passage. The paper leaves open whether a question also attends to itself. Here it does, as in equation 7 and in
    pre-training: a head that finds nothing among the passages can attend to the question.

    A passage's weight depends on the other passages, so all passages of a question are scored together.
    """

    keys: CrossThoughtAnswersConfig
    kind = "lists"

    def __init__(self, trunk: PreTrainedModel, keys: CrossThoughtAnswersConfig) -> None:
        super().__init__(trunk, keys)
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        self.cross = QueriesAndKeys(shape)
        initialise(self.cross, shape.initializer_range)

    def encode(self, tower: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
        return special_states(tower, ids, mask, self.keys.special_tokens)

    def vectors(self, side: Side, encoded: Tensor, mask: Tensor) -> Vectors:
        """Return each passage's N keys [B, N, H], or each question's N scaled queries, then its N keys [B, 2N, H]."""
        queries, keys = self.cross(encoded)
        states = torch.cat([queries, keys], dim=1) if side == "query" else keys
        dtype = torch.promote_types(states.dtype, torch.float32)
        return Vectors(states.to(dtype), torch.ones(states.shape[:2], dtype=torch.bool, device=states.device))

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        """Return each question's log α over these passages, [Q, D]; it depends on the whole set of passages."""
        query, itself = self._question_parts(queries)
        logits = torch.einsum("qnhd,mnhd->qhnm", query, self._by_head(documents.vectors))
        return _log_mean(_log_attention(itself, logits))

    def losses(self, queries: Vectors, documents: Vectors, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # equation 10, summed over questions, each with its own passages
        candidates = arrays["candidates"]  # [Q, n]
        query, itself = self._question_parts(queries)
        keys = self._by_head(documents.vectors[candidates.clamp(min=0)])  # [Q, n, N, heads, d]; -1, no passage, masked
        logits = torch.einsum("qnhd,qmnhd->qhnm", query, keys)
        candidate_logits = logits.masked_fill(~(candidates >= 0)[:, None, None], -torch.inf)
        return {"softmax": -_log_mean(_log_attention(itself, candidate_logits)[..., :1]).sum()}

    def _question_parts(self, questions: Vectors) -> tuple[Tensor, Tensor]:
        """Return the questions' queries [Q, N, heads, d], and their logits for themselves [Q, heads, N, 1]."""
        query, key = (self._by_head(part) for part in questions.vectors.chunk(2, dim=1))
        return query, (query * key).sum(dim=-1).transpose(1, 2)[..., None]

    def _by_head(self, vectors: Tensor) -> Tensor:
        return vectors.unflatten(-1, (self.trunk.config.num_attention_heads, -1))


class QueriesAndKeys(nn.Module):
    """The part of the cross-sequence Transformer that computes its attention, with the names of `TransformerLayer`.

    The second half of `attention.key_value` makes values, which are not used here.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.scale = (width // shape.num_attention_heads) ** -0.5
        self.attention = nn.ModuleDict({"query": nn.Linear(width, width), "key_value": nn.Linear(width, 2 * width)})

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scaled queries and the keys of states [B, N, H], both of the same shape."""
        key, _ = self.attention["key_value"](states).chunk(2, dim=-1)
        # scaled here, once: `score` and `losses` have no parameters, and are plain products
        return self.attention["query"](states) * self.scale, key


class CrossThoughtPairs(PairModel):
    """Classify two texts from the states of their special tokens, after the cross-sequence Transformer over both."""

    keys: CrossThoughtPairsConfig

    def __init__(self, trunk: PreTrainedModel, keys: CrossThoughtPairsConfig) -> None:
        super().__init__()
        require_bidirectional(trunk)
        shape = shape_of(trunk)
        self.trunk, self.keys = trunk, keys
        self.cross = TransformerLayer(shape)
        self.head = nn.Linear(2 * keys.special_tokens * shape.hidden_size, keys.classes or 1)
        for layer in (self.cross, self.head):
            initialise(layer, shape.initializer_range)

    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Return the logits fp32 [P, C] of pairs, ids int64 and mask bool [P, 2, T]; `types` is not read."""
        states = special_states(self.trunk, *as_rows(ids, mask), self.keys.special_tokens)
        slots = states.unflatten(0, (-1, 2)).transpose(1, 2).flatten(0, 1)  # [P * N, 2, H]
        # slot n of one text attends to slot n of both, as in pre-training (eq. 4)
        crossed = self.cross(slots, slots, mask.new_ones(len(slots), 1, 2))
        logits: Tensor = self.head(crossed.reshape(len(ids), -1))  # C_0, C_1, ... of both texts
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def special_states(trunk: PreTrainedModel, ids: Tensor, mask: Tensor, number: int) -> Tensor:
    """Insert the special tokens into texts, ids int64 and mask bool [B, T], and return their states [B, N, H]."""
    return encode(trunk, *insert_special_tokens(trunk, ids, mask, number - 1))[:, :number]


def _log_attention(itself: Tensor, logits: Tensor) -> Tensor:
    """Return the log attention to the passages, [Q, heads, N, n] like `logits`; the softmax includes the question."""
    return torch.cat([itself, logits], dim=-1).log_softmax(dim=-1)[..., 1:]


def _log_mean(log_attention: Tensor) -> Tensor:
    # over heads and special tokens, [Q, heads, N, n] -> [Q, n]; in logarithms, since small weights would underflow
    weights = log_attention.flatten(1, 2)
    return weights.logsumexp(dim=1) - math.log(weights.shape[1])
