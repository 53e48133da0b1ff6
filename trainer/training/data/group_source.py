"""Labelled groups of a collection, for fine-tuning: split into examples, which are dealt to the lanes in units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from data_prep.collections.collection import Collection
from data_prep.collections.relevant import Relevant, group_of
from data_prep.common.errors import InputError
from data_prep.common.rng import keyed_rng
from models.batching.candidates import Example, Unit
from trainer.training.data.generation import Generation


class GroupSource:
    """The examples of a collection's split in a shuffled order, cut into units of data: shards of one chunk each.

    The order depends only on `seed`, and `limit` takes its beginning, so a smaller set of labels is part of every
    larger one. A shard has `unit` examples, the last one possibly fewer; shards are smaller if there would be fewer
    than `least_units` of them. Only numbers are kept in memory: texts are read together with their shard.
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
        """Open a split.

        Raises:
            InputError: no such split, or it has too few examples; the message names the keys of the recipe's `section`.
        """
        self.collection, self.split, self.kind = collection, split, kind
        try:
            self.groups = collection.groups(split)
        except InputError as error:
            raise InputError(f"{section}.split: {error}") from None
        self.relevant = Relevant.of_split(collection, split)
        groups, places = self._examples()
        if len(groups) < (limit or 1):
            what = {"positive": "relevant pairs", "pair": "labelled pairs", "group": "groups"}[kind]
            raise InputError(
                f"{collection.directory}: split {split} has {len(groups)} {what}, the recipe asks for "
                f"{limit or 1}: lower {section}.pairs, or name another {section}.split"
            )
        kept = keyed_rng("labels", seed).permutation(len(groups))[:limit]
        self.numbers, self.places = groups[kept], places[kept]  # the group, and its first candidate's place
        # negatives are drawn from the split itself, so that no document of a held-out split is trained on
        self.candidates = self.relevant.labelled
        self.negatives = self.relevant.fewest_others()  # available for every query
        self.unit = max(1, min(unit, len(self.numbers) // least_units))
        self.chunks: Sequence[int] = [1] * -(-len(self.numbers) // self.unit)
        self.sha256 = collection.sha256
        self.generation: Generation | None = None  # mined negatives that replace the groups' own

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.numbers)

    def read(self, shard: int, chunk: int) -> list[Example]:
        """Return the examples of a shard."""
        rows = range(shard * self.unit, min((shard + 1) * self.unit, len(self)))
        return [self._example(int(self.numbers[i]), int(self.places[i])) for i in rows]

    def given_negatives(self) -> Iterator[tuple[str, int]]:
        """Yield each example's query and the number of negatives in its group."""
        for number in np.unique(self.numbers).tolist():
            query, candidates, labels = self.groups[number]
            negatives = np.setdiff1d(candidates[labels <= 0], self.relevant.never_negative(query))
            yield self.collection.queries.ids[query], len(negatives)

    def given_others(self) -> Iterator[tuple[str, int]]:
        """Yield each example's query and the number of candidates that its group gives it besides its first."""
        if self.kind == "positive":
            yield from self.given_negatives()
            return
        for number in np.unique(self.numbers).tolist():
            query, candidates, _ = self.groups[number]
            yield self.collection.queries.ids[query], len(candidates) - 1

    def given_pairs(self) -> np.ndarray:
        """Return each query with each negative from its groups, int64 [n, 2]."""
        given = np.asarray(self.groups.labels) <= 0
        groups = group_of(self.groups, np.flatnonzero(given))
        queries, documents = np.asarray(self.groups.queries)[groups], np.asarray(self.groups.candidates.flat)[given]
        return np.stack([queries, documents], axis=1)

    def check_classes(self, classes: int) -> None:
        """Raise InputError unless the data have so many classes, and labels of several from 0 to classes - 1."""
        names = self.collection.classes
        if names and len(names) != classes:
            raise InputError(
                f"method.classes: {classes}, but {self.collection.directory} has {len(names)}: {', '.join(names)}: "
                f"set method.classes={len(names)}"
            )
        labels = np.asarray(self.groups.labels)
        wrong = np.flatnonzero((labels < 0) | (labels >= classes) | (labels != np.round(labels)))
        if len(wrong):
            query, _, _ = self.groups[int(group_of(self.groups, wrong[:1])[0])]
            raise InputError(
                f"method.classes: {classes}, but split {self.split} has the label {labels[wrong[0]]:g} "
                f"(query {self.collection.queries.ids[query]}): labels must be whole numbers from 0 to {classes - 1}"
            )
        if len(labels) and labels.min() == labels.max():
            raise InputError(
                f"method.loss=classes: every pair of split {self.split} has the label {labels[0]:g}, so there is "
                "nothing to learn: name a collection with pairs of several classes"
            )

    def check_relevance(self, loss: str) -> None:
        """Raise InputError where labels are classes, or where a loss of every pair would learn one label alone."""
        if names := self.collection.classes:
            raise InputError(
                f"method.loss={loss}: the labels of {self.collection.directory} are classes ({', '.join(names)}), not "
                "relevance: set method.loss=classes, or name another collection"
            )
        relevant = np.asarray(self.groups.labels) > 0
        if self.kind == "pair" and (relevant.all() or not relevant.any()):
            raise InputError(
                f"method.loss={loss}: {'every' if relevant.all() else 'no'} pair of split {self.split} is relevant "
                "(label above 0), so there is nothing to learn: draw negatives (method.negatives_per_query), or name a "
                "collection with pairs of both kinds"
            )

    def check_teacher(self, loss: str) -> None:
        """Raise InputError where an example has no second candidate to compare its first one with, or lacks scores.

        Labels that are all 0 or 1 were not given by a teacher.
        """
        groups, lacks = self.groups, ""
        if groups.scores is None and self.kind == "positive":
            lacks = f"split {self.split} has none beside its labels"
        elif alone := next((query for query, others in self.given_others() if not others), None):
            raise InputError(
                f"method.loss={loss} compares the candidates of a query, but split {self.split} gives query {alone} "
                "one only: leave such queries out of the collection"
            )
        elif groups.scores is None and np.isin(np.asarray(groups.labels), (0, 1)).all():
            lacks = f"all labels of split {self.split} are 0 or 1"
        elif len(without := np.flatnonzero(np.isnan(groups.taught))):
            first = self.collection.queries.ids[groups[int(group_of(groups, without[:1])[0])].query]
            of_all = f"{len(without):,} of {len(groups.taught):,} candidates of split {self.split}"
            lacks = f"{of_all} have none (the first: query {first})"
        if lacks:
            raise InputError(
                f"method.loss={loss} learns a teacher's scores, but {lacks}: have a teacher score it (trainer.mine "
                "--score), or name a collection with scores"
            )

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        """Do nothing: collections are memory-mapped."""

    def release(self, shard: int) -> None:
        """Do nothing."""

    def check_room(self, lanes: int) -> None:
        """Do nothing."""

    def name(self, shard: int, chunk: int, item: int) -> str:
        """Return the ids of the example's query and of its first document."""
        row = shard * self.unit + item
        query, candidates, _ = self.groups[int(self.numbers[row])]
        document = int(candidates[self.places[row]])
        return f"query {self.collection.queries.ids[query]}, document {self.collection.corpus.ids[document]}"

    def _with_mined(self, query: int, document: int, label: float, relevant: np.ndarray) -> Example:
        assert self.generation is not None
        negatives = self.generation.of(query)
        return Example(
            self.collection.queries.tokens(query),
            np.concatenate([[document], negatives]),
            np.concatenate([[label], np.zeros(len(negatives))]).astype(np.float32),
            relevant,
            mined=True,
            text=self.collection.queries.text(query),
        )

    def _example(self, number: int, place: int) -> Example:
        query, candidates, labels = self.groups[number]
        relevant = self.relevant.never_negative(query)
        end = int(self.groups.candidates.ends[number])
        scores = self.groups.taught[end - len(candidates) : end]
        if self.kind == "group":
            chosen = np.lexsort((-scores, -labels))  # a relevant candidate first, or else the teacher's best
        elif self.kind == "pair":
            chosen = np.array([place])
        else:
            if self.generation:
                return self._with_mined(query, int(candidates[place]), float(labels[place]), relevant)
            negatives = np.flatnonzero((labels <= 0) & ~np.isin(candidates, relevant))
            chosen = np.concatenate([[place], negatives])
        return Example(
            self.collection.queries.tokens(query),
            np.asarray(candidates[chosen], np.int64),
            np.asarray(labels[chosen], np.float32),
            relevant,
            scores=np.asarray(scores[chosen], np.float32),
            text=self.collection.queries.text(query),
        )

    def _examples(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the group of every example, and the place of the example's candidate in that group."""
        groups, ends = self.groups, np.asarray(self.groups.candidates.ends)
        if self.kind == "group":
            filled = np.flatnonzero(np.diff(ends, prepend=0))
            return filled, np.zeros(len(filled), np.int64)
        labels, documents = np.asarray(groups.labels), np.asarray(groups.candidates.flat)
        at = np.arange(len(labels)) if self.kind == "pair" else np.flatnonzero(labels > 0)
        numbers = group_of(groups, at)
        if self.kind == "pair" and not self.collection.classes:  # no negative is relevant in another group
            kept = (labels > 0) | ~self.relevant.knows(np.asarray(groups.queries)[numbers], documents)
            at, numbers = at[kept], numbers[kept]
        starts = np.concatenate([[0], ends[:-1]])
        if (numbers[1:] > numbers[:-1]).all():  # one of each group: they are in order
            return numbers, at - starts[numbers]
        order = np.lexsort((documents[at], numbers))
        return numbers[order], (at - starts[numbers])[order]
