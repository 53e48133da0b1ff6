"""What lanes are dealt: the chunks of shards for pre-training, labelled pairs for fine-tuning."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence

import numpy as np

from data_prep.cache import Cache
from data_prep.collection import Collection
from data_prep.errors import InputError
from data_prep.files import read_bytes
from data_prep.shards import Manifest, Shard, TokenDocument
from models.siamese import Pair
from models.task import MarkedDocument
from trainer.keyed import keyed_rng

RETRIES = (1.0, 5.0)  # seconds before a shard is read again: a file system's hiccup is no damage


class ShardSource:
    """Token documents of the shards of a folder, or of a remote one through a cache.

    Every shard is checked against the manifest before its first chunk is read.
    """

    def __init__(self, folder: Manifest | Cache):
        self.cache = folder if isinstance(folder, Cache) else None
        self.manifest = folder.manifest if isinstance(folder, Cache) else folder
        self.chunks: Sequence[int] = [entry.chunks for entry in self.manifest.shards]
        self._open: dict[int, Shard] = {}

    def read(self, shard: int, chunk: int) -> list[TokenDocument]:
        """The documents of one chunk, marked where the shard knows more of their segments than the tokens.

        Raises InputError naming a shard that the manifest does not vouch for.
        """
        for delay in () if self.cache else RETRIES:  # the cache tries again by itself
            try:
                return self._read(shard, chunk)
            except InputError as error:
                print(f"{error}; trying again in {delay:.0f} s", file=sys.stderr, flush=True)
                self._open.pop(shard, None)
                time.sleep(delay)
        return self._read(shard, chunk)

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Download shards that will be read soon, in the background."""
        if self.cache:
            self.cache.fetch_ahead(shards)

    def release(self, shard: int) -> None:
        """A shard is read to its end."""
        if self._open.pop(shard, None) and self.cache:
            self.cache.release(shard)

    def check_room(self, lanes: int) -> None:
        """Raises InputError where the cache cannot hold a shard for each of so many lanes."""
        if self.cache:
            self.cache.check_room(lanes)

    def name(self, shard: int, chunk: int, item: int) -> str:
        """The shard's file, the chunk, and the document's own id."""
        opened = self._shard(shard)
        return f"{opened.path.name} chunk {chunk} document {item} ({opened.provenance(chunk)['documents'][item]})"

    def _read(self, shard: int, chunk: int) -> list[TokenDocument]:
        opened = self._shard(shard)
        documents = opened.read(chunk)
        marks = opened.marks(chunk, documents)
        return [MarkedDocument(d, *known) for d, known in zip(documents, marks, strict=True)]

    def _shard(self, shard: int) -> Shard:
        if shard not in self._open:
            self._open[shard] = self.cache.open(shard) if self.cache else Shard.open(self.manifest, shard)
        return self._open[shard]


class PairSource:
    """The labelled pairs of a collection's split, each a shard of its own: the deal alone shuffles them.

    `limit` takes the first so many of a shuffled order that depends on `seed` alone, so that a smaller set of labels is
    part of every larger one. Raises InputError, blaming the keys of the recipe's `section`, where it has too few.
    """

    def __init__(self, collection: Collection, split: str, limit: int | None, seed: int, section: str = "data"):
        queries, corpus = collection.queries, collection.corpus
        pairs, names = [], []
        for query, judged in collection.qrels(split).items():
            relevant = frozenset(corpus.index[document] for document, grade in judged.items() if grade > 0)
            tokens = queries.tokens(queries.index[query])
            pairs += [Pair(tokens, document, relevant) for document in sorted(relevant)]
            names += [f"query {query}, document {corpus.ids[document]}" for document in sorted(relevant)]
        if len(pairs) < (limit or 1):
            raise InputError(
                f"{collection.directory}: split {split} has {len(pairs)} relevant pairs, {limit or 1} wanted: "
                f"lower {section}.pairs, or name another {section}.split"
            )
        # negatives come from the split's own documents, so that no document of a held-out split is trained on
        self.candidates = np.array(sorted({pair.positive for pair in pairs}), dtype=np.int64)
        kept = keyed_rng("labels", seed).permutation(len(pairs))[:limit]
        self.pairs, self.names = [pairs[i] for i in kept], [names[i] for i in kept]
        self.split = split
        self.negatives = len(self.candidates) - max(len(pair.relevant) for pair in self.pairs)  # for every query
        self.chunks: Sequence[int] = [1] * len(self.pairs)
        digest = hashlib.sha256(read_bytes(collection.directory / "tokens" / "tokens.json"))
        digest.update(read_bytes(collection.directory / "qrels" / f"{split}.tsv"))
        self.sha256 = digest.hexdigest()

    def read(self, shard: int, chunk: int) -> list[Pair]:
        """The one pair of a shard."""
        return [self.pairs[shard]]

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Nothing to do: collections are memory-mapped."""

    def release(self, shard: int) -> None:
        """Nothing to do."""

    def check_room(self, lanes: int) -> None:
        """Nothing to check."""

    def name(self, shard: int, chunk: int, item: int) -> str:
        """The ids of the pair's query and document."""
        return self.names[shard]
