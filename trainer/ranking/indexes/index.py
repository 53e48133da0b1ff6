"""What the kinds of indexes have in common: an index searches what a `Writer` has written; registry.py names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection as Container
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar, overload

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.texts import checked_texts
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.writer import Writer
from deepsiam.trainer.ranking.ranker import Ranker, VectorRanker
from deepsiam.trainer.ranking.rankers.dense import DenseRanker
from deepsiam.trainer.ranking.retrieval.search import Ranked

Kind = TypeVar("Kind", bound="Index")


def require_choice(option: str, choice: str | None, names: Container[str], index: str) -> None:
    """Raise InputError for a value of a command-line option that a kind of index does not have."""
    if choice and choice not in names:
        has = f"has {', '.join(names)}" if names else "has none: leave it out"
        raise InputError(f"{option} {choice}: {index} {has}")


Terms = tuple[tuple[str, float], ...]  # terms of the vocabulary, with what each adds to a score


def in_words(terms: Terms) -> str:
    """Write terms with what they add to a score, as for people."""
    return ", ".join(f"{name} {weight:.2f}" for name, weight in terms)


class Hit(NamedTuple):
    """A document that was found."""

    id: str
    score: float
    text: str
    terms: Terms = ()  # that it shares with the query, where a kind of index tells


@dataclass(frozen=True)
class Index(ABC):
    """An opened index of a kind: it has the ranker of its documents, to read queries.

    All ranks must call `build`, `prepare` and `search_share`: each rank does its share of the work.
    """

    folder: IndexFolder
    ranker: Ranker

    WRITERS: ClassVar[Mapping[str, type[Writer]]] = {}  # of vectors, by dtype of the stored numbers; first the default
    APPROXIMATIONS: ClassVar[tuple[str, ...]] = ()  # the kinds of approximate search that can be prepared

    @property
    def collection(self) -> Collection:
        """The collection whose documents are indexed."""
        return self.ranker.collection

    @classmethod
    def build(
        cls: type[Kind], ranker: Ranker, directory: Path, rank: int = 0, ranks: int = 1, *, dtype: str | None = None
    ) -> Kind:
        """Make or resume an index, and open it; a complete one is only opened.

        Raises:
            InputError: the folder holds something else, a file cannot be written, or a vector is not finite.
        """
        cls.write(ranker, directory, dtype, rank, ranks)
        return cls.open(IndexFolder.open(directory), ranker)

    @classmethod
    def write(cls, ranker: Ranker, directory: Path, dtype: str | None, rank: int, ranks: int) -> None:
        """Make or resume the folder of an index, unless it is complete."""
        assert isinstance(ranker, VectorRanker)
        dtype = dtype or next(iter(cls.WRITERS))
        cls.WRITERS[dtype](ranker, directory, dtype, rank, ranks).write()

    @classmethod
    @abstractmethod
    def open(cls: type[Kind], folder: IndexFolder, ranker: Ranker) -> Kind:
        """Open an index of this ranker; raise InputError where its files are damaged."""

    def asked_by(self, queries: DenseRanker) -> Index:
        """Return the index to be searched for a student's queries; raise InputError unless it has a vector per text."""
        raise InputError(f"{self.folder.directory}: only an index of one vector per text takes another model's queries")

    @abstractmethod
    def __str__(self) -> str:
        """Describe what the index holds."""

    def measure(self, rank: int = 0, ranks: int = 1) -> str | None:
        """Return on rank 0 what to tell of a search of the index, where it is not exact; all ranks must call this."""
        return None

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        """Prepare a kind of approximate search, unless it is prepared already."""
        self.require(approximation)

    def require(self, approximation: str) -> None:
        """Raise InputError unless a kind of approximate search is prepared."""
        require_choice("--approximate", approximation, self.APPROXIMATIONS, str(self.folder.directory))

    @abstractmethod
    def search_share(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        """Find the k best documents for each query in this rank's share of the index, ties in the order of documents.

        The search is exact unless the index has codes (small_vectors.py) or an approximation is named; `require` must
        allow it, and it may find fewer documents.
        Every document is in the share of one rank: `shared.merge` turns all ranks' results into one ranking, which is
        the same for any number of ranks.

        Raises:
            InputError: an embedding is not finite.
        """

    @overload
    def search(self, queries: str, k: int = 10, approximation: str | None = None) -> list[Hit]: ...  # type: ignore[overload-overlap]

    @overload
    def search(self, queries: Iterable[str], k: int = 10, approximation: str | None = None) -> list[list[Hit]]: ...

    def search(
        self, queries: str | Iterable[str], k: int = 10, approximation: str | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """Find the k best documents for a query, or for each of several: best first, ties in the order of documents.

        The search is exact unless the index has codes, or an `approximation` is named that trainer.index has prepared.

        Raises:
            InputError: a query is not a string (the message names its position), k is below 1, or the approximation is
                not prepared.
        """
        texts, corpus = checked_texts(queries, "queries"), self.collection.corpus
        if k < 1:
            raise InputError(f"k: {k} is no number of documents to find: give 1 or more")
        if approximation:
            self.require(approximation)
        ranking = self.search_share(texts, min(k, len(corpus)), approximation) if texts else []
        found = [
            [
                Hit(corpus.ids[i], score, corpus.text(i), terms)
                for i, score, terms in zip(*map(list, ranked), document_terms, strict=True)
            ]
            for ranked, document_terms in zip(ranking, self.matches(texts, ranking), strict=True)
        ]
        return found[0] if isinstance(queries, str) else found

    def matches(self, queries: Sequence[str], ranking: Sequence[Ranked]) -> list[list[Terms]]:
        """Return the terms that each document shares with its query, the most important first; by default none."""
        return [[()] * len(documents) for documents, _ in ranking]
