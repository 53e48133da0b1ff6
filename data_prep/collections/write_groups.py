"""Write the groups of a split: ids become numbers, and the judgements of a query become one group."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.collections.format import Format, Where
from data_prep.collections.gaps import require_any
from data_prep.collections.ids import Ids, zeros_hint
from data_prep.common.errors import InputError
from data_prep.sources.bytes_read import track_files

BATCH = 1_000  # items of a format whose ids are looked up at once


class Entries(NamedTuple):
    """The candidates of a split in the order of the files, one a row."""

    query: np.ndarray  # int64
    candidate: np.ndarray  # int64
    label: np.ndarray  # fp32
    number: np.ndarray  # int64: the number of the format's item that it is in


def write_groups(folder: Path, reader: Format, split: str, queries: Ids, corpus: Ids) -> int:
    """Write a split's groups, and its pool where the format has one, into a new folder; return the number of groups.

    The judgements of a query are one group; groups are in the order of the queries' first lines. In a format with whole
    groups, each group stays as it is. A candidate that occurs twice in a group is kept once. If its labels differ, it
    gets the highest in a whole group or where negatives are mined; else it is refused.

    Raises:
        InputError: an id is unknown, or a label contradicts an earlier one; there are no judgements.
    """
    folder.mkdir(parents=True)
    entries = _read(reader, split, queries, corpus)
    require_any(len(entries.query), f"split {split}: the input has no judgements of it", reader)
    group = entries.number if reader.whole else _by_first(entries.query)
    kept = _each_once(entries, group, reader, split)
    kept = kept[np.argsort(group[kept], kind="stable")]
    starts = np.flatnonzero(np.diff(group[kept], prepend=-1))
    np.save(folder / "queries.npy", entries.query[kept][starts])
    np.save(folder / "group_ends.npy", np.append(starts[1:], len(kept)).astype(np.int64))
    np.save(folder / "candidates.npy", entries.candidate[kept])
    np.save(folder / "labels.npy", entries.label[kept])
    if (pool := reader.pool(split)) is not None:
        np.save(folder / "pool.npy", _pool(pool, corpus))
    return len(starts)


def _read(reader: Format, split: str, queries: Ids, corpus: Ids) -> Entries:
    columns = array("q"), array("q"), array("f"), array("q")
    source = track_files(reader.groups(split), f"split {split}", "lines", reader.group_files(split))
    number = 0
    while batch := list(islice(source, BATCH)):
        of_query = _numbers([item.query for item in batch], [item.where for item in batch], queries, "queries")
        names = [(name, item.where) for item in batch for name in item.candidates]
        counts = [len(item.candidates) for item in batch]
        columns[0].extend(np.repeat(of_query, counts).tolist())
        columns[1].extend(_numbers([name for name, _ in names], [where for _, where in names], corpus, "documents"))
        columns[2].extend(label for item in batch for label in item.labels)
        columns[3].extend(np.repeat(np.arange(number, number + len(batch)), counts).tolist())
        number += len(batch)
    query, candidate, label, numbers = (np.array(column) for column in columns)
    return Entries(query, candidate, label.astype(np.float32), numbers)


def _numbers(names: list[str], where: list[Where], ids: Ids, what: str) -> list[int]:
    found = ids.find(names)
    if len(unknown := np.flatnonzero(found < 0)):
        first = int(unknown[0])
        raise InputError(f"{where[first]}: {names[first]!r} is not among the {what}{zeros_hint(names[first], ids)}")
    return found.tolist()


def _by_first(query: np.ndarray) -> np.ndarray:
    """Number the queries int64 [N] by their first appearance."""
    _, first, inverse = np.unique(query, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _each_once(entries: Entries, group: np.ndarray, reader: Format, split: str) -> np.ndarray:
    """Return the rows (int64) to keep, ascending: for every candidate of a group, the row with the highest label."""
    order = np.lexsort((-entries.label, entries.candidate, group))  # stable: equal labels keep the first line
    same = (np.diff(group[order]) == 0) & (np.diff(entries.candidate[order]) == 0)
    contradicts = same & (np.diff(entries.label[order]) != 0)
    if contradicts.any() and not (reader.whole or reader.is_mined(split)):
        at = np.flatnonzero(contradicts)
        later = np.maximum(order[at], order[at + 1])  # the line that contradicts the other
        where = next(islice(reader.groups(split), int(entries.number[later.min()]), None)).where
        raise InputError(f"{where}: its query and document have another score on an earlier line")
    return np.sort(order[np.r_[True, ~same]])


def _pool(pool: Iterator[tuple[str, Where]], corpus: Ids) -> np.ndarray:
    """Return the numbers of a pool's documents in its order; raise InputError if one is unknown or repeated."""
    pairs = list(pool)
    names, where = [name for name, _ in pairs], [where for _, where in pairs]
    numbers = np.array(_numbers(names, where, corpus, "documents"), np.int64)
    order = np.argsort(numbers, kind="stable")
    repeated = order[1:][np.diff(numbers[order]) == 0]
    if len(repeated):
        first = int(repeated.min())
        raise InputError(f"{where[first]}: document {names[first]!r} is repeated")
    return numbers
