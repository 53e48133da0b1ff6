"""What lanes are dealt: the chunks of shards for pre-training, labelled pairs for fine-tuning."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from data_prep.collection import Collection
from data_prep.errors import InputError
from data_prep.files import read_bytes
from data_prep.shards import Manifest, Shard, TokenDocument
from models.siamese import Pair
from trainer.lanes import keyed_rng


class ShardSource:
    """Token documents of the shards of a manifest; every shard is checked against it before its first chunk is read."""

    def __init__(self, manifest: Manifest):
        self.manifest = manifest
        self.chunks: Sequence[int] = [entry.chunks for entry in manifest.shards]
        self._open: dict[int, Shard] = {}

    def read(self, shard: int, chunk: int) -> list[TokenDocument]:
        """The documents of one chunk; raises InputError naming a shard that the manifest does not vouch for."""
        if shard not in self._open:
            self._open[shard] = Shard.open(self.manifest, shard)
        return self._open[shard].read(chunk)


class PairSource:
    """The labelled pairs of a collection's split, each a shard of its own: the deal alone shuffles them.

    `limit` takes the first so many of a shuffled order that depends on `seed` alone, so that a smaller set of labels is
    part of every larger one.
    """

    def __init__(self, collection: Collection, split: str, limit: int | None, seed: int):
        queries, corpus = collection.queries, collection.corpus
        pairs = []
        for query, judged in collection.qrels(split).items():
            relevant = frozenset(corpus.index[document] for document, grade in judged.items() if grade > 0)
            tokens = queries.tokens(queries.index[query])
            pairs += [Pair(tokens, document, relevant) for document in sorted(relevant)]
        if len(pairs) < (limit or 1):
            raise InputError(
                f"{collection.directory}: split {split} has {len(pairs)} relevant pairs, {limit or 1} wanted: "
                "lower data.pairs, or name another data.split"
            )
        # negatives come from the split's own documents, so that no document of a held-out split is trained on
        self.candidates = np.array(sorted({pair.positive for pair in pairs}), dtype=np.int64)
        kept = keyed_rng("labels", seed).permutation(len(pairs))[:limit]
        self.pairs = [pairs[i] for i in kept]
        self.chunks: Sequence[int] = [1] * len(self.pairs)
        digest = hashlib.sha256(read_bytes(collection.directory / "tokens" / "tokens.json"))
        digest.update(read_bytes(collection.directory / "qrels" / f"{split}.tsv"))
        self.sha256 = digest.hexdigest()

    def read(self, shard: int, chunk: int) -> list[Pair]:
        """The one pair of a shard."""
        return [self.pairs[shard]]
