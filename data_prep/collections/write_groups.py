"""Write the groups of a split: ids become numbers, and the judgements of a query become one group."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from deepsiam.data_prep.collections.excluded import ExcludedDocuments
from deepsiam.data_prep.collections.format import Format, Unlisted, Where
from deepsiam.data_prep.collections.gaps import PRINTED_NAMES, require_any
from deepsiam.data_prep.collections.ids import Ids, zeros_hint
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.bytes_read import track_files

BATCH = 1_000  # items of a format whose ids are looked up at once
LACKS = {"queries": "there is no query", "documents": "the corpus lacks"}


class Entries(NamedTuple):
    """The judgements of a split in the order of the files, one a row."""

    query: np.ndarray  # int64
    candidate: np.ndarray  # int64; below 0, another number for each, where the corpus lacks the document
    label: np.ndarray  # fp32
    score: np.ndarray  # fp32: a teacher's; NaN: none
    number: np.ndarray  # int64: the number of the format's item that it is in
    listed: np.ndarray  # bool: whether it is a candidate


class _Known:
    """Looks ids up, and counts the lines that are left out because theirs is unknown."""

    def __init__(self, ids: Ids, collective: str, strict: bool) -> None:
        self.ids, self.collective, self.strict = ids, collective, strict
        self.unknown: dict[str, int] = {}  # the unknown ids, numbered
        self.left_out = Counter[str]()  # lines, by their unknown id
        self.first: InputError | None = None
        self.first_place = ""

    def numbers(self, names: Sequence[str], where: Sequence[Where], lines: Sequence[int]) -> np.ndarray:
        """Return the number of each id, int64; an unknown one has a number below 0 of its own.

        `lines`: how many are left out if the id is unknown; with 0, it need not be known. Raise InputError for an
        unknown id if `strict`.
        """
        numbers = self.ids.find(names)
        for i in np.flatnonzero(numbers < 0).tolist():
            numbers[i] = -1 - self.unknown.setdefault(names[i], len(self.unknown))
            if not lines[i]:
                continue
            self.left_out[names[i]] += lines[i]
            if self.first is None:
                hint = zeros_hint(names[i], self.ids)
                self.first = InputError(f"{where[i]}: {names[i]!r} is not among the {self.collective}{hint}")
                self.first_place = f"{where[i]}{hint}"
            if self.strict:
                raise self.first
        return numbers

    def remarks(self, total: int, lines: str) -> list[str]:
        """Report what was left out of a `total` of `lines`, if anything was."""
        if not self.left_out:
            return []
        remainder = [f"{len(self.left_out) - PRINTED_NAMES:,} more"] if len(self.left_out) > PRINTED_NAMES else []
        id_names = ", ".join([f"{name!r:.80}" for name in islice(self.left_out, PRINTED_NAMES)] + remainder)
        number = f"{self.left_out.total():,} of {total:,} {lines}"
        return [f"left out {number}: {LACKS[self.collective]} {id_names} (the first: {self.first_place})"]


def write_groups(
    folder: Path,
    reader: Format,
    split: str,
    queries: Ids,
    corpus: Ids,
    excluded: ExcludedDocuments,
    strict: bool = False,
) -> tuple[int, list[str]]:
    """Write a split's groups, and its pool where the format has one, into a new folder.

    Return the number of groups, and remarks on what was left out.

    The judgements of a query are one group; groups are in the order of the queries' first lines. In a format with whole
    groups, each group stays as it is. A candidate that occurs twice in a group is kept once. If its labels differ, it
    gets the highest in a whole group or where negatives are mined; else it is refused.

    Judgements of unknown queries are left out. An unknown document is no candidate, but its label is kept if it is
    above 0: to metrics it is a relevant document that no system finds, as to trec_eval. So a group may have no
    candidates. A document that is excluded for the query is no candidate.

    Raises:
        InputError: an id is unknown, if `strict`; no judgement has a known query and document; a label contradicts an
            earlier one; a relevant document is excluded.
    """
    folder.mkdir(parents=True)
    query_ids, document_ids = _Known(queries, "queries", strict), _Known(corpus, "documents", strict)
    entries, judgements = _read(reader, split, query_ids, document_ids)
    require_any(judgements, f"split {split}: the input has no judgements of it", reader)
    remarks = [line for ids in (query_ids, document_ids) for line in ids.remarks(judgements, "judgements")]
    if not ((entries.candidate >= 0) & entries.listed).any():
        error = query_ids.first or document_ids.first
        assert error
        raise error
    group = entries.number if reader.item_groups else _by_first(entries.query)
    rows = _each_once(entries, group, reader, split)
    if not (reader.item_groups or reader.is_mined(split)) and len(repeats := np.setdiff1d(np.arange(len(group)), rows)):
        where = _where(reader, split, int(entries.number[repeats[0]]))
        remarks.append(f"left out {len(repeats):,} judgements that occur before (the first: {where})")
    entries.listed[rows] &= ~_are_excluded(entries, rows, excluded, reader, split)
    rows = rows[np.argsort(group[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(group[rows], prepend=-1))
    entries = Entries(*(column[rows] for column in entries))
    _save(folder, entries, starts)
    if (pool := reader.pool(split)) is not None:
        pool_ids = _Known(corpus, "documents", strict)
        numbers, pool_remarks = _pool(pool, pool_ids)
        np.save(folder / "pool.npy", numbers)
        remarks += pool_ids.remarks(len(numbers) + pool_ids.left_out.total(), "documents of its pool")
        remarks += pool_remarks
    unscored = int(np.isnan(entries.score[entries.listed]).sum())
    if 0 < unscored < entries.listed.sum():
        remarks.append(f"{unscored:,} of {entries.listed.sum():,} candidates have no teacher's score")
    return len(starts), [f"split {split}: {remark}" for remark in remarks]


def _save(folder: Path, entries: Entries, starts: np.ndarray) -> None:
    """Write the arrays of groups that begin at `starts`."""
    listed = entries.listed & (entries.candidate >= 0)
    unlisted = ~listed & (entries.label > 0)
    np.save(folder / "queries.npy", entries.query[starts])
    np.save(folder / "group_ends.npy", np.add.reduceat(listed, starts, dtype=np.int64).cumsum())
    np.save(folder / "candidates.npy", entries.candidate[listed])
    np.save(folder / "labels.npy", entries.label[listed])
    if not np.isnan(entries.score[listed]).all():
        np.save(folder / "scores.npy", entries.score[listed])
    if unlisted.any():
        np.save(folder / "unlisted.npy", np.maximum(entries.candidate[unlisted], -1))
        np.save(folder / "unlisted_ends.npy", np.add.reduceat(unlisted, starts, dtype=np.int64).cumsum())
        np.save(folder / "unlisted_labels.npy", entries.label[unlisted])


def _read(reader: Format, split: str, query_ids: _Known, document_ids: _Known) -> tuple[Entries, int]:
    """Return the judgements of known queries, and the number of all judgements of candidates."""
    columns = array("q"), array("q"), array("f"), array("f"), array("q"), array("b")
    source = track_files(reader.groups(split), f"split {split}", "lines", reader.by_split[split])
    number = judgements = 0
    while batch := list(islice(source, BATCH)):
        counts = [len(item.candidates) for item in batch]
        candidates = [0 if isinstance(item, Unlisted) else len(item.candidates) for item in batch]
        queries = query_ids.numbers([item.query for item in batch], [item.where for item in batch], candidates)
        known_items = [item for item, query in zip(batch, queries, strict=True) if query >= 0]
        rows = [(item, i) for item in known_items for i in range(len(item.candidates))]
        names, where = [item.candidates[i] for item, i in rows], [item.where for item, _ in rows]
        listed = [not isinstance(item, Unlisted) for item, _ in rows]
        has_query = np.repeat(queries >= 0, counts)
        columns[0].extend(np.repeat(queries, counts)[has_query].tolist())
        columns[1].extend(document_ids.numbers(names, where, listed).tolist())
        columns[2].extend(item.labels[i] for item, i in rows)
        columns[3].extend(item.scores[i] if item.scores else np.nan for item, i in rows)
        columns[4].extend(np.repeat(np.arange(number, number + len(batch)), counts)[has_query].tolist())
        columns[5].extend(listed)
        number += len(batch)
        judgements += sum(candidates)
    query, candidate, label, score, numbers, is_listed = map(np.array, columns)
    return Entries(query, candidate, label, score, numbers, is_listed.astype(bool)), judgements


def _by_first(query: np.ndarray) -> np.ndarray:
    """Number the queries int64 [N] by their first appearance."""
    _, first_rows, inverse = np.unique(query, return_index=True, return_inverse=True)
    rank = np.empty(len(first_rows), np.int64)
    rank[np.argsort(first_rows)] = np.arange(len(first_rows))
    return rank[inverse]


def _each_once(entries: Entries, group: np.ndarray, reader: Format, split: str) -> np.ndarray:
    """Return the rows (int64) to keep, ascending: for every candidate of a group, the row with the highest label.

    Of these it is the one with the highest score; of these, the first.
    """
    order = np.lexsort((-entries.score, -entries.label, entries.candidate, group))  # stable; NaN comes last
    repeats = (np.diff(group[order]) == 0) & (np.diff(entries.candidate[order]) == 0)
    contradicts = repeats & (np.diff(entries.label[order]) != 0)
    if contradicts.any() and not (reader.item_groups or reader.is_mined(split)):
        at = np.flatnonzero(contradicts)
        later = np.maximum(order[at], order[at + 1])  # the line that contradicts the other
        where = _where(reader, split, int(entries.number[later.min()]))
        raise InputError(f"{where}: its query and document have another score on an earlier line")
    return np.sort(order[np.r_[True, ~repeats]])


def _are_excluded(
    entries: Entries, rows: np.ndarray, excluded: ExcludedDocuments, reader: Format, split: str
) -> np.ndarray:
    """Return which of the rows name a document that is excluded for its query, bool [n]."""
    are = excluded.are(entries.query[rows], entries.candidate[rows])
    if len(contradictions := rows[are & (entries.label[rows] > 0)]):
        where = _where(reader, split, int(entries.number[contradictions.min()]))
        raise InputError(f"{where}: its document is relevant to its query, and excluded for it: leave out one of both")
    return are


def _where(reader: Format, split: str, number: int) -> Where:
    return next(islice(reader.groups(split), number, None)).where


def _pool(pool: Iterator[tuple[str, Where]], pool_ids: _Known) -> tuple[np.ndarray, list[str]]:
    """Return the numbers of a pool's known documents, each once, in its order; and a remark if one is repeated."""
    pairs = list(pool)
    names, where = [name for name, _ in pairs], [where for _, where in pairs]
    numbers = pool_ids.numbers(names, where, [1] * len(names))
    if pool_ids.first and numbers.max() < 0:
        raise pool_ids.first
    at = np.sort(np.unique(numbers, return_index=True)[1])
    repeated = np.setdiff1d(np.flatnonzero(numbers >= 0), at)
    documents = numbers[at][numbers[at] >= 0]
    if not len(repeated):
        return documents, []
    first_place = where[int(repeated[0])]
    return documents, [f"left out {len(repeated):,} documents of its pool that occur before (the first: {first_place})"]
