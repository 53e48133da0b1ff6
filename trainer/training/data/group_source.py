"""Labelled groups of a collection, for fine-tuning: split into examples, which are dealt to the lanes in units.

In a step of fine-tuning it stands where shard_source.py stands in pre-training: below the lanes, which read from it.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.relevant import Relevant, by_group, group_of, pairs_at
from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.batching.candidates import Example, Unit
from deepsiam.trainer.training.data.generation import Generation
from deepsiam.trainer.training.data.shuffled import shuffled

AT_ONCE = 1 << 20  # candidates in memory, where all are counted


class GroupSource:
    """The examples of a collection's split in a shuffled order, cut into units of data: shards of one chunk each.

    The order depends only on `seed`, and `limit` takes its beginning, so a smaller set of labels is part of every
    larger one. A shard has `unit` examples, the last one possibly fewer; shards are smaller if there would be fewer
    than `least_units` of them. Everything is read together with its shard: opening ten million pairs reads none.
    """

    def __init__(
        self,
        collection: Collection,
        split: str,
        kind: Unit,
        limit: int | None,
        seed: int,
        section: str = "data",
        *,
        unit: int,
        least_units: int = 1,
    ):
        """Open a split; raise InputError, naming keys of the recipe's `section`, if it is absent or has too few."""
        self.collection, self.split, self.kind = collection, split, kind
        try:
            self.groups = collection.groups(split)
        except InputError as error:
            raise InputError(f"{section}.split: {error}") from None
        self.relevant = Relevant.of_split(collection, split)  # of the whole split, also with a `limit`
        self.first = self._first_places()  # of all examples that there are
        if len(self.first) < (limit or 1):
            examples = {"positive": "relevant pairs", "pair": "labelled pairs", "group": "groups"}[kind]
            raise InputError(
                f"{collection.directory}: split {split} has {len(self.first)} {examples}, the recipe asks for "
                f"{limit or 1}: lower {section}.pairs, or name another {section}.split"
            )
        self._order = shuffled(len(self.first), "labels", seed)
        self._length = limit or len(self.first)
        # negatives are drawn from the split itself, so that no document of a held-out split is trained on
        self.candidates = self.relevant.labelled
        self.negatives = self.relevant.fewest_others()  # available for every query
        self.unit = max(1, min(unit, len(self) // least_units))
        self.chunks: Sequence[int] = [1] * -(-len(self) // self.unit)
        self.sha256 = collection.sha256
        self.generation: Generation | None = None  # mined negatives that replace the groups' own

    def __len__(self) -> int:
        """The number of examples."""
        return self._length

    def places(self, examples: np.ndarray) -> np.ndarray:
        """Return the place of the first candidate of each example in the groups' flat arrays, both int64 [n]."""
        return self.first[self._order[examples]]

    def read(self, shard: int, chunk: int) -> list[Example]:
        """Return the examples of a shard."""
        places = self.places(np.arange(shard * self.unit, min((shard + 1) * self.unit, len(self))))
        numbers = group_of(self.groups, places)
        return [self._example(number, at) for number, at in zip(numbers.tolist(), places.tolist(), strict=True)]

    @cached_property
    def used(self) -> np.ndarray:
        """The groups of all examples, int64, sorted."""
        return np.unique(group_of(self.groups, self.places(np.arange(len(self)))))

    def query_of(self, group: int) -> str:
        """Return what a message calls a group's query."""
        return self.collection.queries.called(int(self.groups.queries[group]))

    def given_negatives(self) -> np.ndarray:
        """Return how many negatives each group of `used` has, int64."""
        counts, labels = np.zeros(len(self.groups), np.int64), self.groups.labels
        for start in range(0, len(labels), AT_ONCE):
            at = start + np.flatnonzero(labels[start : start + AT_ONCE] <= 0)
            negatives = at[~self.relevant.are_never_negative(*pairs_at(self.groups, at))]
            numbers = group_of(self.groups, negatives)  # in order
            if len(numbers):
                counts[numbers[0] : numbers[-1] + 1] += np.bincount(numbers - numbers[0])
        return counts[self.used]

    def given_others(self) -> np.ndarray:
        """Return how many candidates each group of `used` gives an example besides its first, int64."""
        if self.kind == "positive":
            return self.given_negatives()
        return np.diff(self.groups.candidates.ends, prepend=0)[self.used] - 1

    def given_pairs(self) -> np.ndarray:
        """Return each query with each negative from its groups, int64 [n, 2]."""
        return np.stack(pairs_at(self.groups, np.flatnonzero(self.groups.labels <= 0)), axis=1)

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Do nothing: collections are memory-mapped."""

    def release(self, shard: int) -> None:
        """Do nothing, likewise."""

    def cached_bytes(self, shards: int) -> int:
        """Return 0: they are not remote."""
        return 0

    def name(self, shard: int, chunk: int, item: int) -> str:
        """Return what a message calls the example's query and its first document."""
        group, document = self.origin(shard * self.unit + item)
        return f"query {self.query_of(group)}, document {self.collection.corpus.called(document)}"

    def origin(self, item: int) -> tuple[int, int]:
        """Return the numbers of an item's group and of its first document."""
        places = self.places(np.array([item]))
        return int(group_of(self.groups, places)[0]), int(self.groups.candidates.flat[places[0]])

    def _example(self, number: int, first_place: int) -> Example:
        """Return the example of a group whose first candidate has a place in the flat arrays."""
        query, candidates, labels = self.groups[number]
        queries, relevant = self.collection.queries, self.relevant.never_negative(query)
        end = int(self.groups.candidates.ends[number])
        scores, place = self.groups.taught[end - len(candidates) : end], first_place - (end - len(candidates))
        if self.kind == "group":
            selection = np.lexsort((-scores, -labels))  # a relevant candidate first, or else the teacher's best
        elif self.kind == "pair":
            selection = np.array([place])
        elif self.generation:
            negatives = self.generation.negatives(query)
            documents = np.concatenate([candidates[place : place + 1], negatives])
            new_labels = np.concatenate([labels[place : place + 1], np.zeros(len(negatives))]).astype(np.float32)
            return Example(queries.tokens(query), documents, new_labels, relevant, mined=True, text=queries.text(query))
        else:
            irrelevant = (candidates[:, None] != relevant).all(axis=1)  # a tenth of the time of np.isin, on a few
            selection = np.concatenate([[place], np.flatnonzero((labels <= 0) & irrelevant)])
        return Example(
            queries.tokens(query),
            np.asarray(candidates[selection], np.int64),
            np.asarray(labels[selection], np.float32),
            relevant,
            scores=np.asarray(scores[selection], np.float32),
            text=queries.text(query),
        )

    def _first_places(self) -> np.ndarray:
        """Return the place of the first candidate of every example in the groups' flat arrays, int64, not shuffled."""
        if self.kind == "positive":
            return self.relevant.places
        groups, ends = self.groups, self.groups.candidates.ends
        if self.kind == "group":
            counts = np.diff(ends, prepend=0)
            return (ends - counts)[counts > 0]
        at = np.arange(len(groups.labels))
        if not self.collection.classes:  # no negative is relevant in another group
            at = at[(groups.labels > 0) | ~self.relevant.knows(*pairs_at(groups, at))]
        return by_group(groups, at)
