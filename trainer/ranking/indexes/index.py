"""What the kinds of indexes have in common; registry.py names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from trainer.ranking.indexes.folder import Folder
from trainer.ranking.ranker import Ranker
from trainer.ranking.retrieval.search import Ranked


def require_choice(option: str, given: str | None, names: Sequence[str], index: str) -> None:
    """Raise InputError for a value of a command-line option that a kind of index does not have."""
    if given and given not in names:
        has = f"has {', '.join(names)}" if names else "has none: leave it out"
        raise InputError(f"{option} {given}: {index} {has}")


class Index(Protocol):
    """A kind of index: how it is made, opened and searched.

    An opened index has what it needs to read queries. All ranks must call `build`, `prepare` and `search`: each rank
    does its share of the work.
    """

    DTYPES: ClassVar[tuple[str, ...]]  # of the stored numbers, where there is a choice; the first is the default
    APPROXIMATIONS: ClassVar[tuple[str, ...]]  # the kinds of approximate search that can be prepared

    @property
    def folder(self) -> Folder:
        """Where the index is, and what it was made of."""

    @property
    def collection(self) -> Collection:
        """The collection whose documents are indexed."""

    @classmethod
    def build(
        cls,
        ranker: Ranker,
        directory: Path,
        rank: int = 0,
        ranks: int = 1,
        *,
        dtype: str | None = None,
    ) -> Index:
        """Make or resume an index, and open it; a complete one is only opened.

        Raises:
            InputError: the folder holds something else, a file cannot be written, or a vector is not finite.
        """

    @classmethod
    def open(cls, folder: Folder, ranker: Ranker) -> Index:
        """Open an index of this ranker; raise InputError where its files are damaged."""

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        """Prepare a kind of approximate search, unless it is prepared already."""

    def require(self, approximation: str) -> None:
        """Raise InputError unless a kind of approximate search is prepared."""

    def search(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        """Find the k best documents for each query in this rank's share of the index, ties in the order of documents.

        The search is exact unless an approximation is named; `require` must allow it, and it may find fewer documents.
        Every document is in the share of one rank: `ranks.merge` turns all ranks' results into one ranking, which is
        the same for any number of ranks.

        Raises:
            InputError: an embedding is not finite.
        """
