"""Queries in words to documents: an index with its model and its collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from trainer.checkpoints.load import LoadedModel
from trainer.checkpoints.published import load_any
from trainer.retrieval.index import Index, fingerprint
from trainer.retrieval.texts import query_vectors


class Found(NamedTuple):
    """A document that was found."""

    name: str  # its id
    score: float
    text: str


@dataclass(frozen=True)
class Searcher:
    """What answers queries."""

    index: Index
    collection: Collection
    trained: LoadedModel

    @classmethod
    def open(cls, index: Index, collection: Path | None = None, model: Path | None = None) -> Searcher:
        """Load the model and open the collection that an index was made of.

        Args:
            index: remembers where they were.
            collection: where the collection is, if elsewhere.
            model: where the model is, if elsewhere.

        Raises:
            InputError: either is missing or another one.
        """
        of_collection, of_model = index.manifest["collection"], index.manifest["model"]
        opened = Collection.open(collection or Path(of_collection["directory"]))
        if opened.sha256 != of_collection["sha256"]:
            raise InputError(
                f"{opened.directory}: is not the collection that {index.directory} was made of, or was made again: "
                "make the index again, or name the collection with --collection"
            )
        trained = load_any(model or Path(of_model["checkpoint"]))
        if fingerprint(trained) != of_model["fingerprint"]:
            raise InputError(
                f"{trained.checkpoint}: is not the model that {index.directory} was made with: name that one with "
                "--model, or make the index again"
            )
        return cls(index, opened, trained)

    def search(self, queries: Sequence[str], k: int, kind: str | None = None) -> list[list[Found]]:
        """Find the best k documents for each query; equal scores are in the collection's order.

        Raises:
            InputError: an embedding is not finite; as `Index.search`.
        """
        tokens = self.collection.tokenizer.encode(list(queries))
        vectors = query_vectors(self.trained, self.collection, tokens)
        ids, corpus = self.collection.corpus.ids, self.collection.corpus
        return [
            [Found(ids[i], score, corpus.text(i)) for i, score in zip(*map(list, ranked), strict=True)]
            for ranked in self.index.search(vectors, k, kind)
        ]
