"""What to show of a document that was found."""

from __future__ import annotations

from typing import NamedTuple

from data_prep.collections.collection import Collection
from trainer.ranking.retrieval.search import Ranked


class Found(NamedTuple):
    """A document that was found."""

    name: str  # its id
    score: float
    text: str


def found(ranked: Ranked, collection: Collection) -> list[Found]:
    """Return the documents of a ranking, best first."""
    names, corpus = collection.corpus.ids, collection.corpus
    return [Found(names[i], score, corpus.text(i)) for i, score in zip(*map(list, ranked), strict=True)]
