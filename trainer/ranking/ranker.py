"""A model that ranks, opened once for a collection: evaluation, mining, indexes, search and the refresh all ask it.

rankers/ has a file for each kind, and registry.py there opens them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from pydantic import ValidationError

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import meter
from deepsiam.models.batching.framing import Framing
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.vectors import Vectors
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.choices import PRECISIONS
from deepsiam.trainer.ranking.retrieval.encode import (
    TextEncoder,
    batch_tokens,
    distinct,
    length_batches,
    places,
    without_padding,
)
from deepsiam.trainer.ranking.retrieval.shared import compute_my_batches
from deepsiam.trainer.ranking.retrieval.system import List, System, Texts, scores_of_lists
from deepsiam.trainer.ranking.server import EXAMPLE
from deepsiam.trainer.training.engine.device import has_bf16, this_device

if TYPE_CHECKING:
    from typing_extensions import Self

CLASSES = "classes"  # the loss of models that classify pairs
DTYPES = dict(zip(PRECISIONS, (torch.float32, torch.bfloat16), strict=True))
NO_SCORE = "a score alone means nothing, so it cannot be fused, mined with or learned from"
NUMBER, WORD, URL, TEXT = "[1-9][0-9]{0,8}", r"\S+", r"http://\S+", "(?s:.*)"  # what an option of a ranker may be
IN_WORDS = {NUMBER: "a number", WORD: "a name", URL: EXAMPLE, TEXT: "a text"}
PROMPTS = {"query_prompt": TEXT, "document_prompt": TEXT}  # the options of models that encode texts
ENDLESS = 1 << 16  # tokens, more than any model reads


def usual_precision(device: torch.device) -> str:
    """Return what models compute in, unless told otherwise: bf16 on a GPU that has it, else fp32."""
    return "bf16" if device.type != "cpu" and has_bf16() else "fp32"


def check_options(options: Mapping[str, str], patterns: Mapping[str, str], ranker: str) -> None:
    """Raise ValueError for an option, as in `RUN(dimensions=128)`, that a ranker lacks, or a value that it cannot have.

    `patterns` says what each may be: words or `NUMBER`, `WORD`, `URL`, `TEXT`, with | between them.
    """
    for name, value in options.items():
        if name not in patterns:
            raise ValueError(f"'{name}' is not an option of {ranker}: {', '.join(patterns)}")
        if not re.fullmatch(patterns[name], value):
            choices = ", ".join(IN_WORDS.get(pattern, pattern) for pattern in patterns[name].split("|"))
            raise ValueError(f"'{value}': {name} is {choices}")


def split_by_list(scores: np.ndarray, lists: Sequence[List]) -> list[np.ndarray]:
    """Return the scores of each list's documents, given those of all lists, one after the other."""
    return np.split(scores, np.cumsum([len(documents) for _, documents in lists])[:-1])


class Ranker(ABC):
    """Ranks the documents of a collection for its queries.

    Attributes:
        name: the model, as manifests name it.
        title: the model, as messages name it.
        collection: contains the texts.
        searches: whether each document is scored by itself, so that a whole pool can be ranked; if not, the ranker only
            re-ranks lists that another one found.
        by_itself: whether the score of a document does not depend on the others of its list, so that it can be compared
            with scores from elsewhere.
        dimensions: how many numbers of a vector count, where it was cut.
        passes_made: forward passes for a list, the mean of those that it scored last, where documents decide on them.
        position_bias: of the lists that it scored last, the mean of |p_ij + p_ji - 1| over pairs of documents, where it
            compares them in both orders: 0 if their order does not matter.
    """

    name: str
    title: str
    collection: Collection
    searches: ClassVar[bool] = True
    by_itself: ClassVar[bool] = True
    dimensions: int | None = None
    passes_made: float | None = None
    position_bias: float | None = None

    @property
    @abstractmethod
    def kind(self) -> str:
        """The key of its class in the registry, and of its kind of index."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What an index's manifest keeps of it; rankers with the same fingerprint give the same scores."""

    @property
    def width(self) -> int | None:
        """How many numbers the vector of a text has, where it has one, which can be cut."""
        return None

    @property
    def predicts_classes(self) -> bool:
        """Whether it has logits of classes in place of a score."""
        return False

    @property
    def note(self) -> str | None:
        """What the user should know of the way that it is used."""
        return None

    @property
    def temperature(self) -> float:
        """What its scores are divided by where a student learns them."""
        return 1.0

    def with_options(self, options: Mapping[str, str]) -> Ranker:
        """Return the ranker with the options that `--system` gives it; raise ValueError for one that it lacks."""
        if options:
            raise ValueError(f"{self.title} has no options: leave out {next(iter(options))}=...")
        return self

    def cut(self, dimensions: int) -> Self:
        """Return the ranker by the first numbers of its vectors; raise InputError where there are not that many."""
        raise InputError(
            f"{self.title} is not a model of one vector per text, which can be cut to {dimensions} dimensions"
        )

    def passes(self, documents: int) -> int:
        """Return the forward passes for a query and a list of documents, besides those of texts encoded ahead."""
        return 0

    def require_depth(self, depth: int) -> None:
        """Raise InputError where it does not re-rank lists of this many documents."""
        if not self.by_itself and depth < 2:
            raise InputError(f"{self.title} compares the documents of a list: re-rank 2 or more")

    def require_score(self) -> None:
        """Raise InputError for a model that predicts classes."""
        if self.predicts_classes:
            raise InputError(f"{self.name}: predicts classes and gives no score to rank by: evaluate with --classes")

    def require_by_itself(self) -> None:
        """Raise InputError where the score of a document depends on its list."""
        if not self.by_itself:
            raise InputError(f"{self.title} scores a document by comparing it with its list: {NO_SCORE}")

    def system(self, texts: Texts, encoded_pool: System | None = None) -> System:
        """Encode or index texts, to score all documents of their pool.

        Args:
            texts: the queries and the pool.
            encoded_pool: has the documents of the same pool encoded, for other queries; they are not encoded again.

        Raises:
            InputError: the ranker does not search, or its vectors are not finite.
        """
        raise InputError(f"{self.title} cannot search: it re-ranks what another system found")

    def scores(self, lists: Sequence[List], work: str = "score") -> list[np.ndarray]:
        """Score each list's documents for its query, fp32 [n]; every text is encoded once.

        Args:
            lists: at least one, with at least one document each.
            work: names the work in the progress line.

        Raises:
            InputError: scores or vectors are not finite.
        """
        texts = Texts.of_lists(self.collection, lists)
        return scores_of_lists(self.system(texts).of, texts, lists, work)


class ModelRanker(Ranker):
    """A trained model, on its device, in eval mode.

    Attributes:
        reads_text: whether it reads the collection's text, so that its tokenizer need not be the collection's.
    """

    reads_text: ClassVar[bool] = False

    def __init__(
        self, trained: LoadedModel, collection: Collection, precision: str | None = None, *, in_training: bool = False
    ) -> None:
        """Move the model to the device, and make it compute in a precision of `PRECISIONS`.

        The default is `usual_precision`. Vectors and scores are fp32 in either. A model that is `in_training` stays
        where its engine puts it, and as it is.
        """
        assert isinstance(trained.method, MatchingConfig)
        self.loaded, self.collection, self.name = trained, collection, str(trained.checkpoint)
        self.title = f"{self.name}: a {trained.kind}"
        self.model: Any = trained.model
        self.method: MatchingConfig = trained.method
        self.device = this_device()
        self.precision = precision or usual_precision(self.device)
        if in_training:
            return
        if self.precision != "fp32":
            _ = self.identity  # that of the weights as they were trained
        self.model.to(self.device, DTYPES[self.precision])

    def with_collection(self, collection: Collection) -> Self:
        """Return a ranker of other texts with the same model; raise InputError where another tokenizer read them."""
        if not self.reads_text:
            collection.require_tokenizer(self.loaded.tokenizer, self.name)
        ranker = copy.copy(self)
        ranker.collection = collection
        return ranker

    @property
    def kind(self) -> str:
        return str(self.model.kind)

    def passes(self, documents: int) -> int:
        return 1  # for the query

    @property
    def predicts_classes(self) -> bool:
        return self.method.loss == CLASSES

    @property
    def accelerator(self) -> torch.device | None:
        """The device for work that numpy does on a CPU; None for that."""
        return None if self.device.type == "cpu" else self.device

    def by_length(
        self, lengths: Sequence[int], score: Callable[[list[int]], torch.Tensor], report: Callable[[int], None]
    ) -> np.ndarray:
        """Compute the scores or logits of N inputs, in batches of similar length: fp32 [N, ...].

        Args:
            lengths: of the inputs, in tokens.
            score: gives those of a batch, from its numbers.
            report: is told after each batch how many inputs are done.

        Raises:
            InputError: one is not finite.
        """

        @torch.inference_mode()
        def score_batch(batch: list[int]) -> np.ndarray:
            scores: np.ndarray = score(batch).float().cpu().numpy()
            return scores

        order, parts = list[int](), list[np.ndarray]()
        for batch, batch_scores in compute_my_batches(length_batches(lengths, batch_tokens(self.device)), score_batch):
            parts.append(batch_scores)
            order += batch
            report(len(order))
        scores = np.concatenate(parts) if parts else np.empty(0, np.float32)
        if not np.isfinite(scores).all():
            raise InputError(f"{self.title}: its scores are not finite: take an earlier checkpoint")
        return scores[places(order)]

    def distinct_scores(
        self,
        lists: Sequence[List],
        work: str,
        read: Callable[[int, int], np.ndarray],
        score: Callable[[list[tuple[int, int]]], torch.Tensor],
        extra: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of a query and a document; those that the model reads alike are scored once, so that they tie.

        Args:
            lists: contain the pairs.
            work: names the work in the progress line.
            read: gives what tells a pair, by its numbers, from others: the token ids that the model reads.
            score: gives the scores or logits of a batch of pairs.
            extra: how many tokens more the model reads.

        Returns:
            The scores of the distinct pairs, fp32 [D, ...], and which of them each pair is, int64 [P].

        Raises:
            InputError: one is not finite.
        """
        pairs = [(query, int(document)) for query, documents in lists for document in documents]
        lengths = np.empty(len(pairs), np.int64)

        def rows() -> Iterator[np.ndarray]:
            for i, pair in enumerate(pairs):
                row = read(*pair)
                lengths[i] = len(row) + extra
                yield row

        pair_numbers, first_pairs = distinct(rows())
        with meter(work, "pairs", len(first_pairs)) as report:
            scores = self.by_length(
                lengths[first_pairs].tolist(),
                lambda batch: score([pairs[i] for i in first_pairs[batch].tolist()]),
                lambda progress: report(progress, ""),
            )
        return scores, pair_numbers

    def max_tokens(self) -> dict[str, Any]:
        """Return how much of a query and of a document the model reads, in tokens, as JSON values."""
        method, vocabulary = self.method, self.collection.tokenizer
        return {
            "query": _most_tokens(method.query_framing(vocabulary)),
            "document": _most_tokens(method.document_framing(vocabulary)),
            **({"kept_of_query": "end"} if method.kept_of_query == "end" else {}),
        }

    @cached_property
    def identity(self) -> dict[str, str]:
        """The checkpoint, and the SHA-256 of the weights and the method's keys."""
        digest = hashlib.sha256(json.dumps(self.method.model_dump(mode="json"), sort_keys=True).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
        return {"checkpoint": str(Path(self.name).resolve()), "fingerprint": digest.hexdigest()}


class VectorRanker(ModelRanker):
    """A model that encodes queries and documents separately (`deepsiam.models.matching.dual_encoder.DualEncoder`)."""

    OPTIONS: ClassVar[Mapping[str, str]] = PROMPTS

    @cached_property
    def identity(self) -> dict[str, str]:
        return {**super().identity, **_prompts(self.method)}

    def with_options(self, options: Mapping[str, str]) -> Self:
        check_options(options, self.OPTIONS, self.title)
        return self.with_prompts({name: options[name] for name in PROMPTS if name in options})

    def with_prompts(self, prompts: Mapping[str, str]) -> Self:
        """Return a ranker with the same model and these prompts; itself, if they are unchanged.

        Raises:
            ValueError: a prompt leaves a text no room, or its side is not read by a model.
        """
        present = _prompts(self.method)
        if all(text == present.get(name, "") for name, text in prompts.items()):
            return self
        try:
            method = type(self.method).model_validate({**self.method.model_dump(exclude_unset=True), **prompts})
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        for framing in (method.query_framing, method.document_framing):
            framing(self.loaded.tokenizer)
        ranker = copy.copy(self)
        ranker.method = method
        prompt_keys = json.dumps(method.prompts(), sort_keys=True)
        digest = hashlib.sha256(f"{self.identity['fingerprint']} {prompt_keys}".encode())
        weight_keys = {name: value for name, value in self.identity.items() if name not in present}
        ranker.identity = {**weight_keys, "fingerprint": digest.hexdigest(), **_prompts(method)}
        return ranker

    @property
    def temperature(self) -> float:
        return float(self.model.temperature)

    @property
    def queries(self) -> TextEncoder:
        """The encoder of queries."""
        framing = self.method.query_framing(self.loaded.tokenizer)
        return TextEncoder(self.model.embed_queries, framing, self.device, "encode queries", self.stored)

    @property
    def documents(self) -> TextEncoder:
        """The encoder of documents."""
        framing = self.method.document_framing(self.loaded.tokenizer)
        return TextEncoder(self.model.embed_documents, framing, self.device, "encode documents", self.stored)

    def stored(self, encoded: Vectors) -> tuple[np.ndarray, np.ndarray]:
        """Return what is stored of the vectors of n texts, text after text, and how much of each, int64 [n]."""
        return without_padding(encoded)


def _prompts(method: MatchingConfig) -> dict[str, str]:
    return {f"{side}_prompt": text for side, text in method.prompts().items()}


def _most_tokens(framing: Framing) -> int:
    """Return the most tokens of a text that are read, over all its inputs, [CLS] and [SEP] included."""
    endless = np.full(ENDLESS, framing.vocabulary.pad)
    return int(framing.arrays([endless])["ids"].size)
