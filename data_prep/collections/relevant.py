"""Documents that must not become negatives of a query: its relevant and excluded documents, and copies of itself.

Two texts are equal if all their token ids are, whatever a model cuts off: texts that differ only in outer white space,
or in what the tokenizer normalises, are equal. Of texts with an unknown token, the characters must be equal, too. A
text without tokens equals no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from deepsiam.data_prep.collections.collection import PARTS, SPLITS, Collection
from deepsiam.data_prep.collections.flat_arrays import Rows, map_array
from deepsiam.data_prep.collections.groups import Groups
from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer

FOLDER = "relevant"  # of a split
ARRAYS = "queries", "texts", "own_documents", "labelled", "pairs", "numbers", "places"
IdenticalIds = Literal["auto", "on", "off"]
IDENTICAL_IDS: tuple[IdenticalIds, ...] = ("auto", "on", "off")
SAMPLE = 1000  # shared ids whose texts are compared
ROWS = 1 << 16  # texts that are hashed at once


@dataclass(frozen=True)
class Relevant:
    """The documents with a label above 0 for each query of a split, in any group of any query with the same text.

    Documents whose tokens are those of the query are found by comparing these, not here: that would read the corpus.
    All arrays are int64.
    """

    collection: Collection
    queries: np.ndarray  # [Q]: the queries of the split, sorted
    texts: np.ndarray  # [Q]: the first of them with an equal text
    own_documents: np.ndarray  # [Q]: the document that is the query itself, see `own_documents`; -1: there is none
    labelled: np.ndarray  # the documents with a label above 0, sorted
    pairs: np.ndarray  # text * stride + document of each relevant document, sorted
    numbers: np.ndarray  # [2]: `stride`, which is above every such document, and what `fewest_others` returns
    places: np.ndarray  # of the candidates with a label above 0 in the flat arrays of the groups, by group and document

    @classmethod
    def of_groups(cls, collection: Collection, groups: Groups) -> "Relevant":
        """Read the labels, and the tokens and ids of the queries, of a split's groups."""
        queries = _unique(groups.queries)
        texts = first_equal(collection.queries, queries, collection.tokenizer.unk)
        copies = own_documents(collection, queries)
        places = by_group(groups, np.flatnonzero(groups.labels > 0))
        pair_queries, documents = pairs_at(groups, places)
        labelled = _unique(documents)
        if groups.unlisted is not None:  # also those of the corpus that are not among the candidates
            at = np.flatnonzero(groups.unlisted.flat >= 0)
            numbers = np.searchsorted(groups.unlisted.ends, at, side="right")
            pair_queries = np.concatenate([pair_queries, groups.queries[numbers]])
            documents = np.concatenate([documents, groups.unlisted.flat[at]])
        stride = 1 + int(documents.max(initial=0))
        pairs = _unique(texts[queries.searchsorted(pair_queries)] * stride + documents)
        relevant = cls(collection, queries, texts, copies, labelled, pairs, np.array([stride, 0]), places)
        return replace(relevant, numbers=np.array([stride, len(labelled) - relevant._most_never_negative()]))

    @classmethod
    def of_split(cls, collection: Collection, split: str) -> "Relevant":
        """Memory-map what `write_relevant` has stored; of a collection without all of it, read the groups."""
        groups, folder = collection.groups(split), collection.directory / SPLITS / split / FOLDER
        if not all((folder / f"{name}.npy").exists() for name in ARRAYS):
            return cls.of_groups(collection, groups)
        stored = cls(collection, *(map_array(folder / f"{name}.npy", [np.int64]) for name in ARRAYS))
        differ = not len(stored.queries) == len(stored.texts) == len(stored.own_documents)
        if differ or len(stored.numbers) != 2 or (stored.places[-1:] >= len(groups.labels)).any():
            raise InputError(f"{folder}: damaged (its arrays are of different queries); make the collection again")
        return stored

    @property
    def stride(self) -> int:
        """One more than the largest relevant document: packs a text and a document into one integer."""
        return int(self.numbers[0])

    def of(self, query: int) -> np.ndarray:
        """Return the documents that are relevant to a query's text, int64, sorted."""
        at = self._place(query)
        base = (0 if at is None else int(self.texts[at])) * self.stride
        start, end = (0, 0) if at is None else self.pairs.searchsorted(np.array([base, base + self.stride])).tolist()
        return self.pairs[start:end] - base

    def own(self, query: int) -> int:
        """Return the document that is the query itself, by its id (see `own_documents`); -1: there is none."""
        at = self._place(query)
        return -1 if at is None else int(self.own_documents[at])

    def are_own(self, query: int, documents: np.ndarray) -> np.ndarray:
        """Return which documents, int64 [n], are the query's own text, by its tokens or its id: bool [n]."""
        corpus, unknown = self.collection.corpus, self.collection.tokenizer.unk
        namesake, text = self.own(query), _content(self.collection.queries, query, unknown)
        are = (i == namesake or (text != b"" and text == _content(corpus, i, unknown)) for i in documents.tolist())
        return np.fromiter(are, bool, len(documents))

    def knows(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return which documents are relevant to the texts of their queries, bool [n]; both int64 [n]."""
        if not len(self.pairs):
            return np.zeros(len(documents), bool)
        pairs = self.texts[self.queries.searchsorted(queries)] * self.stride + documents
        at = np.minimum(self.pairs.searchsorted(pairs), len(self.pairs) - 1)
        matches: np.ndarray = (documents < self.stride) & (self.pairs[at] == pairs)
        return matches

    def are_never_negative(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return which documents are among `never_negative` of their queries, bool [n]; both int64 [n]."""
        are_own: np.ndarray = self.own_documents[self.queries.searchsorted(queries)] == documents
        return are_own | self.knows(queries, documents) | self.collection.excluded.are(queries, documents)

    def never_negative(self, query: int) -> np.ndarray:
        """Return the documents of `of` and `own`, and those that are excluded for the query, int64, sorted."""
        relevant, namesake, excluded = self.of(query), self.own(query), self.collection.excluded.of(query)
        if namesake < 0 and not len(excluded):
            return relevant
        return np.unique([*relevant, *([namesake] * (namesake >= 0)), *excluded])

    def fewest_others(self) -> int:
        """Return how many documents of `labelled`, at least, may be negatives of any query."""
        return int(self.numbers[1])

    def _most_never_negative(self) -> int:
        """Return how many documents of `labelled`, at most, are never negatives of a query."""
        texts, documents = np.divmod(self.pairs, self.stride)
        starts, ends = texts.searchsorted(self.texts), texts.searchsorted(self.texts, side="right")
        in_all = np.concatenate([[0], np.isin(documents, self.labelled).cumsum()])
        counts, excluded = in_all[ends] - in_all[starts], self.collection.excluded
        has_more = np.isin(self.own_documents, self.labelled)
        if excluded:
            has_more |= [bool(len(excluded.of(query))) for query in self.queries.tolist()]
        for at in np.flatnonzero(has_more).tolist():
            unlabelled = {int(self.own_documents[at]), *excluded.of(int(self.queries[at])).tolist()}
            unlabelled -= set(documents[starts[at] : ends[at]].tolist())
            counts[at] += np.isin([*unlabelled], self.labelled).sum()
        return int(counts.max(initial=0))

    def _place(self, query: int) -> int | None:
        at = int(self.queries.searchsorted(np.int64(query)))
        return at if at < len(self.queries) and self.queries[at] == query else None


def write_relevant(folder: Path, tokenizer: Tokenizer, split: str) -> None:
    """Store what is relevant in a split of a collection whose manifest is not written yet: training starts at once.

    Written is an array for each attribute of `Relevant`, in a new folder.
    """
    corpus, queries = (Texts.map(folder / part, tokenizer.vocab_size) for part in PARTS)
    split_folder = folder / SPLITS / split
    relevant = Relevant.of_groups(Collection(folder, tokenizer, corpus, queries, {}), Groups.map(split_folder))
    (split_folder / FOLDER).mkdir()
    for name in ARRAYS:
        np.save(split_folder / FOLDER / f"{name}.npy", getattr(relevant, name))


def _unique(numbers: np.ndarray) -> np.ndarray:
    # np.unique hashes the numbers, which takes several times as long
    ordered = np.sort(numbers)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]]


def group_of(groups: Groups, at: np.ndarray) -> np.ndarray:
    """Return the number of the group that each position of the flat arrays is in."""
    return np.searchsorted(groups.candidates.ends, at, side="right")


def by_group(groups: Groups, at: np.ndarray) -> np.ndarray:
    """Sort ascending positions of the flat arrays by group, then by document; int64 [n]."""
    numbers = group_of(groups, at)
    if (numbers[1:] > numbers[:-1]).all():  # one of each group: they are in order
        return at
    return at[np.lexsort((groups.candidates.flat[at], numbers))]


def positive_pairs(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Return the query and the document of each candidate with a label above 0, both int64 [n]."""
    return pairs_at(groups, np.flatnonzero(groups.labels > 0))


def pairs_at(groups: Groups, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the query and the document of the candidates at positions of the flat arrays, both int64 [n]."""
    return groups.queries[group_of(groups, at)], groups.candidates.flat[at]


def left_out(collection: Collection, split: str, rule: IdenticalIds) -> dict[int, int]:
    """Return the document that is left out of each ranking, by the query's number: BEIR's `ignore_identical_ids`.

    `auto`: the query's own document (see `own_documents`), unless the split judges it relevant to the query; `on`: the
    document with the query's id, whatever it is; `off`: none.
    """
    if rule == "off":
        return {}
    groups = collection.groups(split)
    queries = np.unique(groups.queries)
    namesakes = own_documents(collection, queries, by_id_alone=rule == "on")
    exist = namesakes >= 0
    pairs = dict(zip(queries[exist].tolist(), namesakes[exist].tolist(), strict=True))
    if rule == "auto" and pairs:
        for query, document in zip(*(numbers.tolist() for numbers in positive_pairs(groups)), strict=True):
            if pairs.get(query) == document:
                del pairs[query]
    return pairs


def unranked(collection: Collection, queries: Sequence[int], namesakes: Mapping[int, int]) -> dict[int, np.ndarray]:
    """Return the documents, int64, that are left out of rankings, by the number of each query that has some.

    They are those that are excluded for a query, and its namesake (see `left_out`).
    """
    excluded = collection.excluded
    pairs = (
        (query, [namesakes[query]] if query in namesakes else []) for query in (queries if excluded else namesakes)
    )
    documents = {query: np.union1d(excluded.of(query), np.array(namesake, np.int64)) for query, namesake in pairs}
    return {query: numbers for query, numbers in documents.items() if len(numbers)}


def own_documents(collection: Collection, queries: np.ndarray, *, by_id_alone: bool = False) -> np.ndarray:
    """Return for each query the document that is the query itself, int64 [Q]: the one with its id; -1 if there is none.

    Ids that are plain numbers may be equal by accident, as in MS MARCO. They count only if at least half of the shared
    ones (of a sample) name a document that contains the query's text. With `by_id_alone` all count.
    """
    namesakes = np.full(len(queries), -1, np.int64)
    names, ids = collection.queries.ids, collection.corpus.ids
    hashes = names.hashes_of(queries)
    at = np.minimum(ids.hashes.searchsorted(hashes), len(ids) - 1)
    shared = np.flatnonzero(ids.hashes[at] == hashes)
    numbered = shared[np.array([names[int(queries[i])].isdecimal() for i in shared.tolist()], bool)]
    if not by_id_alone and not _contain(collection, queries, numbered):
        shared = np.setdiff1d(shared, numbered)
    namesakes[shared] = ids.find([names[int(queries[i])] for i in shared.tolist()])
    return namesakes


def _contain(collection: Collection, queries: np.ndarray, shared: np.ndarray) -> bool:
    """Return whether half of the documents with the ids of some queries contain these queries' texts."""
    sample = queries[shared[np.linspace(0, len(shared) - 1, min(len(shared), SAMPLE), dtype=np.int64)]].tolist()
    documents = collection.corpus.ids.find([collection.queries.ids[i] for i in sample]).tolist()
    texts = (
        (collection.queries.text(q), collection.corpus.text(d))
        for q, d in zip(sample, documents, strict=True)
        if d >= 0
    )
    folded = ((" ".join(query.split()).casefold(), " ".join(text.split()).casefold()) for query, text in texts)
    contained = [query in text for query, text in folded if query]
    return sum(contained) * 2 >= max(1, len(contained))


def first_equal(texts: Texts, numbers: np.ndarray, unknown: int | None) -> np.ndarray:
    """Return for each text, by its number (int64 [n], sorted), the number of the first of these texts that equals it.

    `unknown` is the id of unknown tokens, if there is one.
    """
    parts = np.split(numbers, range(ROWS, len(numbers), ROWS))
    hashes = np.concatenate([_hashes(texts.token_rows, part) for part in parts])
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    firsts, by_content = numbers.copy(), dict[bytes, int]()
    for at in np.flatnonzero(counts[inverse] > 1).tolist():  # few: only these are compared
        number = int(numbers[at])
        if content := _content(texts, number, unknown):
            firsts[at] = by_content.setdefault(content, number)
    return firsts


def _content(texts: Texts, number: int, unknown: int | None) -> bytes:
    """Return a key to find equal texts: token ids, and characters if a token is unknown; empty without tokens."""
    tokens = texts.tokens(number)
    characters = " ".join(texts.text(number).split()).encode() if unknown is not None and unknown in tokens else b""
    return tokens.tobytes() + characters


def _hashes(rows: Rows, numbers: np.ndarray) -> np.ndarray:
    """Return a hash of each row's token ids, uint64 [n]; 0 for an empty row."""
    ends = rows.ends[numbers]
    starts = np.where(numbers > 0, rows.ends[numbers - 1], 0)
    counts = ends - starts
    firsts = counts.cumsum() - counts
    places = np.arange(counts.sum()) - np.repeat(firsts, counts)
    tokens = np.asarray(rows.flat)[np.repeat(starts, counts) + places].astype(np.uint64) + np.uint64(1)
    factors = np.uint64(0x9E3779B97F4A7C15) ** np.arange(1, counts.max(initial=0) + 1, dtype=np.uint64)
    sums = np.concatenate([[np.uint64(0)], (tokens * factors[places]).cumsum(dtype=np.uint64)])
    return sums[firsts + counts] - sums[firsts]  # modulo 2^64
