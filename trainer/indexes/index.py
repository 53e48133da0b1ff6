"""What the kinds of indexes have in common; registry.py names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from trainer.checkpoints.load import LoadedModel
from trainer.indexes.folder import Folder
from trainer.retrieval.search import Ranked


def require_choice(option: str, given: str | None, names: Sequence[str], index: str) -> None:
    """Raise InputError where an option of the command line is given that a kind of index does not have."""
    if given and given not in names:
        has = f"has {', '.join(names)}" if names else "has none: leave it out"
        raise InputError(f"{option} {given}: {index} {has}")


class Index(Protocol):
    """A kind of index: how it is made, opened and searched.

    An opened one has what it needs to read queries. All its ranks call `build`, `prepare` and `search` alike: each does
    its share of the work.
    """

    DTYPES: ClassVar[tuple[str, ...]]  # of the stored numbers, where there is a choice; the first one unless asked for
    APPROXIMATIONS: ClassVar[tuple[str, ...]]  # the kinds of approximate search that can be prepared

    @property
    def folder(self) -> Folder:
        """Where it is, and what it was made of."""

    @property
    def collection(self) -> Collection:
        """Whose documents it has."""

    @classmethod
    def build(
        cls,
        trained: LoadedModel | None,
        collection: Collection,
        directory: Path,
        rank: int = 0,
        ranks: int = 1,
        *,
        dtype: str | None = None,
    ) -> Index:
        """Make an index, or resume one, and open it; one that is whole is opened.

        Raises:
            InputError: the model is of another kind, its tokenizer is not the collection's, the folder holds something
                else, or a file cannot be written.
        """

    @classmethod
    def open(cls, folder: Folder, trained: LoadedModel | None, collection: Collection) -> Index:
        """Open an index of this model and this collection; raise InputError where its files are damaged."""

    def prepare(self, approximation: str, rank: int = 0, ranks: int = 1) -> None:
        """Prepare a kind of approximate search, unless it is there."""

    def require(self, approximation: str) -> None:
        """Raise InputError unless a kind of approximate search is prepared."""

    def search(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        """Find the k best documents for each query in this rank's share of the index, equal scores by document.

        Exact, unless an approximation is named, which `require` allows; that one may find fewer. The shares of all
        ranks have every document once: `ranks.merge` makes one ranking of them, the same for any number of ranks.

        Raises:
            InputError: an embedding is not finite.
        """
