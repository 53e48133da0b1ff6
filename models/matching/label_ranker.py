"""Rank by the labels of a causal language model: a prompt, one forward pass, the logits of the labels' tokens.

Three rankers in one, by the template:

pointwise   {document}: "is it relevant?", labels yes and no (Qwen3-Reranker): log p(yes) - log(p(yes) + p(no))
listwise    {passages}: all passages of a window, each with its label, are ranked by the logits of the first token of
            the answer (FIRST, Reddy et al., 2024); setwise (Zhuang et al., 2024) uses only the best passage of a window
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_uppercase
from typing import Annotated, Literal, Protocol, cast

import numpy as np
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.models.batching.candidates import Candidates, Example, Unit
from deepsiam.models.batching.packing import text_tokens
from deepsiam.models.batching.prompts import LINE_PLACES, PLACES, PromptFraming, Reader, places_of
from deepsiam.models.causality import is_causal
from deepsiam.models.config import OrRegistered
from deepsiam.models.encode import encode_texts
from deepsiam.models.interface import MicroBatch, Vocabulary
from deepsiam.models.layers.label_head import LabelHead
from deepsiam.models.layers.pooling import pool
from deepsiam.models.layers.ranking_losses import LOSSES, candidates_losses
from deepsiam.models.matching.batcher import ExampleBatcher
from deepsiam.models.matching.config import NEED_OF_NEGATIVES, Losses, MatchingConfig
from deepsiam.models.trunk import TrunkModel

Loss = Annotated[Literal["softmax", "binary", "kl", "margin_mse", "rank_net"], OrRegistered(LOSSES)]
TEMPLATE = (
    "Search query: {query}\n\nPassages:\n{passages}\nRank the passages by their relevance to the search query, the "
    "most relevant one first. Answer with their letters alone, as in: {labels}\n\nAnswer:\n"
)
YES, NO = 0, 1  # the places of the labels of a pointwise ranker


class LabelRankerConfig(MatchingConfig):
    """The keys of a ranker by labels; the negatives of a query are its own."""

    folder_kind = "causal LM"

    name: Literal["label_ranker"]
    loss: Losses[Loss] = "softmax"
    template: str = TEMPLATE
    passage: str = "[{label}] {passage}\n"  # of each passage, in the place of {passages}
    labels: list[str] = Field([*ascii_uppercase[:20]], min_length=2)
    max_document_tokens: int = Field(400, ge=3)  # some 300 words
    max_prompt_tokens: int = Field(4096, ge=8)

    @model_validator(mode="after")
    def _prompt_suits_the_loss(self) -> LabelRankerConfig:
        places, line = places_of(self.template, PLACES)[1::2], places_of(self.passage, LINE_PLACES)[1::2]
        if "query" not in places or places.count("passages") + places.count("document") != 1:
            raise ValueError(
                "method.template: needs a place for the {query}, and one for either the {passages} or the {document}; "
                "it may have one for the {labels}"
            )
        if self.is_list and sorted(line) != ["label", "passage"]:
            raise ValueError("method.passage: needs a place for the {label} and one for the text of the {passage}")
        if not self.is_list and len(self.labels) != 2:
            raise ValueError(
                f"method.labels: {len(self.labels)}, but a template with a {{document}} needs two: that of a relevant "
                "document, such as yes, and the other"
            )
        passages = max(1 + self.own_negatives, self.candidates.per_query if self.candidates else 0)
        if self.is_list and passages > len(self.labels):
            raise ValueError(
                f"method.labels: {len(self.labels)} are too few for the {passages} passages of a query: name more, or "
                "lower method.hard_negatives, method.negatives_per_query or method.candidates.per_query"
            )
        if self.is_list and "binary" in self.losses:
            raise ValueError("method.loss=binary judges one document: take a template with a {document}, or softmax")
        if "softmax" in self.losses and not self.has_own_negatives:
            raise ValueError(f"method.loss=softmax {NEED_OF_NEGATIVES}")
        return self

    @property
    def is_list(self) -> bool:
        """Whether a prompt has a list of passages."""
        return "passages" in places_of(self.template, PLACES)[1::2]

    @property
    def unit(self) -> Unit:
        """What an example is; where an order is learnt, it is a whole group, the best candidate first."""
        return "group" if self.taught else super().unit

    @property
    def start_heads(self) -> str | None:
        return "labels."

    @property
    def input_lengths(self) -> dict[str, int]:
        return {"method.max_prompt_tokens": self.max_prompt_tokens}

    def head_tokens(self, vocabulary: Vocabulary) -> list[int]:
        return self.prompt_framing(vocabulary).label_ids

    def prompt_framing(self, vocabulary: Vocabulary) -> PromptFraming:
        """How a query and passages become the arguments of `label_logits`."""
        return PromptFraming(
            cast(Reader, vocabulary),
            self.template,
            self.passage,
            self.labels,
            max_tokens=self.max_prompt_tokens,
            max_query_tokens=self.max_query_tokens,
            max_document_tokens=self.max_document_tokens,
            kept_of_query=self.kept_of_query,
        )

    def choose(self, candidates: Candidates, example: Example, rng: np.random.Generator) -> list[int]:
        documents = super().choose(candidates, example, rng)
        return documents[: len(self.labels)] if self.is_list else documents

    def batcher(self, vocabulary: Vocabulary, candidates: Candidates) -> LabelBatcher:
        return LabelBatcher(self, vocabulary, candidates)

    def model(self, trunk: PreTrainedModel) -> LabelRanker:
        return LabelRanker(trunk, self)


class Written(Protocol):
    """A corpus whose documents are known as text."""

    def text(self, i: int) -> str:
        """Return document i."""


class LabelBatcher(ExampleBatcher[LabelRankerConfig]):
    """Examples -> N prompts: one for each query, with its candidates in a random order; or one for each candidate.

    `prompt_ids` int64 and `prompt_mask` bool [N, T], as the framing makes them, and `candidate_arrays`, whose
    `candidates` are the places of labels in the flattened logits [N * L] of a list, else the numbers of prompts.
    """

    def __init__(self, keys: LabelRankerConfig, vocabulary: Vocabulary, candidates: Candidates) -> None:
        super().__init__(keys, vocabulary, candidates)
        self.framing = keys.prompt_framing(vocabulary)
        _ = self.framing.label_ids  # refuses labels that are not single tokens before the workers start

    def micro_batch(self, examples: Sequence[Example], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        """Draw each query's negatives, and the order of its list, with its own rng; frame and pad the prompts."""
        text, width = cast(Written, self.candidates.corpus).text, len(self.keys.labels)
        choices, rows, places = list[list[int]](), list[np.ndarray](), list[np.ndarray]()
        for example, rng in zip(examples, rngs, strict=True):
            documents = self.keys.choose(self.candidates, example, rng)
            passages = list(map(text, documents))
            if self.keys.is_list:
                # shuffled, or the model would learn that the first label is the relevant passage's
                order = rng.permutation(len(documents))
                places.append(len(rows) * width + order.argsort())
                rows.append(self.framing.row(example.text, [passages[i] for i in order]))
            else:
                places.append(len(rows) + np.arange(len(documents)))
                rows += [self.framing.row(example.text, [passage]) for passage in passages]
            choices.append(documents)
        arrays = {f"prompt_{name}": array for name, array in self.framing.arrays(rows).items()}
        arrays |= self.candidate_arrays(examples, choices)
        arrays["candidates"][arrays["candidates"] >= 0] = np.concatenate(places)  # row by row, as `places` is
        counts = {loss: sum(map(len, choices)) if loss == "binary" else len(examples) for loss in self.keys.losses}
        return MicroBatch(arrays, counts, text_tokens(rows, self.vocabulary))


class LabelRanker(TrunkModel):
    """A causal trunk and the rows `labels.` of a language model's head, one for each label; it can only re-rank."""

    newer = frozenset({"labels.bias"})

    def __init__(self, trunk: PreTrainedModel, keys: LabelRankerConfig) -> None:
        """Draw the rows at random; a start that is a language model has its own."""
        super().__init__()
        if not is_causal(trunk):
            raise ValueError(
                f"a label_ranker continues a prompt, and the trunk (model_type {trunk.config.model_type!r}) is not "
                "causal: take a decoder, such as qwen3 or llama"
            )
        self.trunk, self.keys = trunk, keys
        self.kind = "listwise" if keys.is_list else "pointwise"
        self.labels = LabelHead(trunk.config, len(keys.labels))

    def label_logits(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the logits of the labels after each prompt, at least fp32 [N, L]; ids int64 and mask bool [N, T]."""
        return self.labels.logits(pool(encode_texts(self.trunk, ids, mask), mask, "last"))

    def relevance(self, logits: Tensor) -> Tensor:
        """Return log p(yes) - log(p(yes) + p(no)) of the logits of a pointwise ranker: [N, 2] to [N]."""
        return F.logsigmoid(logits[:, YES] - logits[:, NO])  # the same, without overflow

    def forward(
        self, prompt_ids: Tensor, prompt_mask: Tensor, candidates: Tensor, **arrays: Tensor
    ) -> dict[str, Tensor]:
        """The arrays of `LabelBatcher` as tensors -> {loss: the sum over its targets}.

        A list's scores are the logits of its labels; a document's is the logit of yes less that of no.
        """
        logits = self.label_logits(prompt_ids, prompt_mask)
        scores = logits.flatten() if self.keys.is_list else logits[:, YES] - logits[:, NO]
        candidate_scores = scores[candidates.clamp(min=0)]  # [Q, n]
        return candidates_losses(self.keys.losses, candidate_scores, candidates >= 0, arrays)
