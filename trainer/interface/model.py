"""A trained model in Python: `load` it, encode texts, compare them, rank them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.texts import checked_texts
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.trainer.interface import vectors
from deepsiam.trainer.interface.vectors import Stored
from deepsiam.trainer.ranking.choices import PRECISIONS
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.ranker import ModelRanker, VectorRanker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.search import Ranked, order_of
from deepsiam.trainer.ranking.retrieval.system import Texts

_NOTHING = Ranked(np.empty(0, np.int64), np.empty(0, np.float32))
Precision = Literal["fp32", "bf16"]
Encoded = Any  # what the texts of a side become depends on the kind of model: see `Model.encode_query`


def load(path: str | os.PathLike[str], *, precision: Precision | None = None) -> Model:
    """Load a model that compares texts.

    Args:
        path: a run (its newest sound checkpoint), a checkpoint, an export, or the folder of a published model.
        precision: what the model computes in; by default bf16 on a GPU that has it, else fp32. Results are fp32.

    Raises:
        InputError: the path is no model, a damaged one, or one that was not trained to compare texts.
    """
    if precision not in (None, *PRECISIONS):
        raise InputError(f"precision: {precision!r} is not one of {', '.join(PRECISIONS)}")
    loaded = load_any(Path(path))
    return Model(Path(path), ranker_of(loaded, Collection.of_texts([], [], loaded.tokenizer), precision))


class Model:
    """A trained model that encodes or ranks texts; `load` makes it.

    It puts prompts before texts, cuts and normalises as it was trained to, in batches of similar lengths, on the GPU if
    there is one. White space around a text does not count.

    Attributes:
        path: as it was given to `load`.
    """

    def __init__(self, path: Path, ranker: ModelRanker) -> None:
        self.path, self.ranker = path, ranker

    def __repr__(self) -> str:
        return f"<deepsiam.Model {self.ranker.title}, {self.kind}>"

    @property
    def kind(self) -> str:
        """How it ranks: dense, multi_vector, poly, sparse, or a kind that has `rank` alone, such as pairs."""
        return self.ranker.kind

    @property
    def width(self) -> int | None:
        """How many numbers the vector of a text has; None for a model that is not of one vector per text."""
        return self.ranker.width

    @property
    def tokenizer(self) -> Tokenizer:
        """What makes tokens of texts."""
        return self.ranker.loaded.tokenizer

    def encode_query(
        self,
        texts: str | Iterable[str],
        *,
        dimensions: int | None = None,
        precision: Stored = "fp32",
        as_tensor: bool = False,
    ) -> Encoded:
        """Encode queries.

        Args:
            texts: N texts, or a single one.
            dimensions: how many of the first numbers of each vector are kept; for cosine, a vector keeps length 1.
            precision: of each number: fp32; fp16; int8, times 127, for models that compare by cosine; or binary, a bit,
                1 above 0, packed into uint8 [N, ceil(H / 8)]. The last three are for one vector per text.
            as_tensor: return torch tensors on the CPU, of the same shapes.

        Returns:
            Of a model of one vector per text, fp32 [N, H]; of several vectors per text, a list of N arrays fp32 [m, H];
            of a sparse model, a scipy CSR array fp32 [N, V] of the weights of the tokenizer's V tokens. For a single
            text, that text's alone: [H], [m, H], or a CSR array of one row.

        Raises:
            InputError: a text is not a string (the message names its position), the vectors are shorter than
                `dimensions` or cannot have the precision, or the model reads a query and a document together, so that
                it has no vectors.
        """
        return self._encode("query", texts, dimensions, precision, as_tensor)

    def encode_document(
        self,
        texts: str | Iterable[str],
        *,
        dimensions: int | None = None,
        precision: Stored = "fp32",
        as_tensor: bool = False,
    ) -> Encoded:
        """Encode documents; arguments and results are those of `encode_query`."""
        return self._encode("document", texts, dimensions, precision, as_tensor)

    def _encode(
        self,
        side: Literal["query", "document"],
        texts: str | Iterable[str],
        dimensions: int | None,
        precision: Stored,
        as_tensor: bool,
    ) -> Encoded:
        ranker = self._encoder()
        vectors.check_precision(ranker, precision)  # before texts are encoded, which may take hours
        if dimensions is not None:
            ranker = ranker.cut(dimensions)
            if ranker.note:
                warnings.warn(ranker.note, stacklevel=3)
        encoder = ranker.queries if side == "query" else ranker.documents
        encoded = vectors.encode(ranker, encoder, self.tokenizer.encode(checked_texts(texts, "texts")))
        if isinstance(texts, str) and not vectors.is_sparse(encoded):
            encoded = encoded[0]
        encoded = vectors.in_fewer_bytes(encoded, precision)
        return vectors.as_tensors(encoded) if as_tensor else encoded

    def _encoder(self) -> VectorRanker:
        if not (isinstance(self.ranker, VectorRanker) and self.ranker.searches):
            raise InputError(f"{self.ranker.title} has no vectors to compare: use rank(query, texts)")
        return self.ranker

    def similarity(self, queries: Encoded, documents: Encoded) -> np.ndarray:
        """Score documents for queries as the model does, fp32 [Q, D].

        Args:
            queries: what `encode_query` returns for Q queries or a single one.
            documents: what `encode_document` returns for D documents or a single one.

        Raises:
            InputError: the model has no vectors.
        """
        return vectors.scores(self._encoder(), queries, documents)

    @overload
    def rank(self, query: str, texts: Iterable[str]) -> list[tuple[int, float]]: ...  # type: ignore[overload-overlap]

    @overload
    def rank(self, query: Iterable[str], texts: Iterable[str]) -> list[list[tuple[int, float]]]: ...

    def rank(
        self, query: str | Iterable[str], texts: Iterable[str]
    ) -> list[tuple[int, float]] | list[list[tuple[int, float]]]:
        """Rank texts for a query, or for each of several.

        Returns:
            The position of each text, from 0, and its score, best first; equal scores are in the order of the texts. A
            sparse model leaves out the texts that share no term with the query.

        Raises:
            InputError: a text is not a string, the model predicts classes, or takes no list of this length.
        """
        queries, documents = checked_texts(query, "query"), checked_texts(texts, "texts")
        self.ranker.require_score()
        ranked = self._ranked(queries, documents) if queries and documents else [_NOTHING] * len(queries)
        rankings = [list(zip(places.tolist(), scores.tolist(), strict=True)) for places, scores in ranked]
        return rankings[0] if isinstance(query, str) else rankings

    def _ranked(self, queries: Sequence[str], documents: Sequence[str]) -> list[Ranked]:
        collection = Collection.of_texts(queries, documents, self.tokenizer)
        ranker, places = self.ranker.with_collection(collection), np.arange(len(documents))
        if ranker.searches:
            return ranker.system(Texts(collection, [*range(len(queries))], places.tolist())).rank(len(places))
        ranker.require_depth(max(2, len(places)))
        lists = ranker.scores([(number, places.tolist()) for number in range(len(queries))], "rank")
        orders = [order_of(scores, places) for scores in lists]
        return [Ranked(order, scores[order]) for order, scores in zip(orders, lists, strict=True)]

    # MTEB 2's EncoderProtocol: mteb.evaluate(deepsiam.load(run), tasks)

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], *, prompt_type: Any = None, **of_task: object
    ) -> Encoded:
        """Encode the texts of MTEB's batches: queries as such; all others, as of tasks without queries, as documents.

        `of_task` is what MTEB tells of the task, which the model does not depend on.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        is_query = getattr(prompt_type, "value", prompt_type) == "query"
        return self.encode_query(texts) if is_query else self.encode_document(texts)

    def similarity_pairwise(self, queries: Encoded, documents: Encoded) -> np.ndarray:
        """Score document i for query i, fp32 [N]; both as in `similarity`."""
        pairs = (self.similarity(queries[i : i + 1], documents[i : i + 1]) for i in range(len(queries)))
        return np.array([score.item() for score in pairs], np.float32)

    @property
    def mteb_model_meta(self) -> Any:
        """What MTEB knows the model by; its revision is the hash of its weights, as MTEB keeps results by it."""
        from mteb.models import ModelMeta

        name, revision = f"deepsiam/{self.path.resolve().name}", self.ranker.identity["fingerprint"]
        about = {"name": name, "revision": revision, "embed_dim": self.width, "framework": ["PyTorch"]}
        return ModelMeta.create_empty(overwrites=about)
