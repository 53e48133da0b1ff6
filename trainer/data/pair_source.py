"""Labelled pairs of a collection, for fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.common.errors import InputError
from models.matching.siamese import Pair
from trainer.data.rng import keyed_rng


class PairSource:
    """The labelled pairs of a collection's split in a shuffled order, cut into units: shards of one chunk each.

    The order depends on `seed` alone and `limit` takes its beginning, so that a smaller set of labels is part of every
    larger one. A unit has `unit` pairs, the last one maybe fewer; where that would give fewer than `least_units` units,
    they are smaller. Raise InputError, naming the keys of the recipe's `section`, where the split has too few pairs.
    """

    def __init__(
        self,
        collection: Collection,
        split: str,
        limit: int | None,
        seed: int,
        section: str = "data",
        *,
        unit: int,
        least_units: int = 1,
    ):
        queries, corpus = collection.queries, collection.corpus
        pairs, numbers = [], []
        groups = collection.groups(split)
        for i in range(len(groups)):
            query, candidates, labels = groups[i]
            relevant = frozenset(candidates[labels > 0].tolist())
            tokens = queries.tokens(query)
            pairs += [Pair(tokens, document, relevant) for document in sorted(relevant)]
            numbers += [(query, document) for document in sorted(relevant)]
        if len(pairs) < (limit or 1):
            raise InputError(
                f"{collection.directory}: split {split} has {len(pairs)} relevant pairs, the recipe asks for "
                f"{limit or 1}: lower {section}.pairs, or name another {section}.split"
            )
        # negatives are documents of the split itself, so that no document of a held-out split is trained on
        self.candidates = np.array(sorted({pair.positive for pair in pairs}), dtype=np.int64)
        kept = keyed_rng("labels", seed).permutation(len(pairs))[:limit]
        self.pairs, self.numbers = [pairs[i] for i in kept], [numbers[i] for i in kept]
        self.split = split
        self.negatives = len(self.candidates) - max(len(pair.relevant) for pair in self.pairs)  # for every query
        self.unit = max(1, min(unit, len(self.pairs) // least_units))
        self.chunks: Sequence[int] = [1] * -(-len(self.pairs) // self.unit)
        self.queries, self.documents = queries.ids, corpus.ids
        self.sha256 = collection.sha256

    def read(self, shard: int, chunk: int) -> list[Pair]:
        """The pairs of a unit."""
        return self.pairs[shard * self.unit : (shard + 1) * self.unit]

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Do nothing: collections are memory-mapped."""

    def release(self, shard: int) -> None:
        """Do nothing."""

    def check_room(self, lanes: int) -> None:
        """Do nothing."""

    def name(self, shard: int, chunk: int, item: int) -> str:
        """The ids of the pair's query and document."""
        query, document = self.numbers[shard * self.unit + item]
        return f"query {self.queries[query]}, document {self.documents[document]}"
