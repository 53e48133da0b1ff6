"""BM25: words in place of a trained model."""

from __future__ import annotations

from functools import cached_property

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.extras import require
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.retrieval.bm25 import FINGERPRINT, NAME, Bm25
from deepsiam.trainer.ranking.retrieval.system import System, Texts


class Bm25Ranker(Ranker):
    """Ranks by the words that a document shares with a query; word statistics are those of the pool or the lists."""

    name = title = kind = NAME

    def __init__(self, collection: Collection) -> None:
        """Raise InputError where bm25s is not installed."""
        require("evaluate", "bm25s", feature=NAME)
        self.collection = collection

    def system(self, texts: Texts, encoded_pool: System | None = None) -> Bm25:
        queries = [self.collection.queries.text(i) for i in texts.queries]
        if isinstance(encoded_pool, Bm25):
            return Bm25.of_words(queries, encoded_pool.words, encoded_pool.documents)
        return Bm25.of_texts(queries, [self.collection.corpus.text(i) for i in texts.pool])

    @cached_property
    def identity(self) -> dict[str, str]:
        return {"fingerprint": FINGERPRINT}
