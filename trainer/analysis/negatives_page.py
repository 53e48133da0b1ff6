"""A page of queries with their relevant documents and negatives side by side, so that a person sees false ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.collections.groups import Groups
from deepsiam.data_prep.collections.relevant import group_of
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, require_name, whole_file
from deepsiam.data_prep.common.html_page import note, page, passage, section, side_by_side, words_of
from deepsiam.data_prep.common.rng import keyed_rng

SHOWN = 10  # documents of a kind that are shown for a query


def write_page(folder: Path, split: str, queries: int, out: Path) -> None:
    """Write the page of a collection's split; see `negatives_page`."""
    require_name(out)
    html = negatives_page(Collection.open(folder), split, queries)
    make_directory(out.parent)
    with whole_file(out) as opened:
        opened.write(html.encode())
    print(f"wrote {out}: queries of split {split}, with their relevant documents and negatives")


def negatives_page(collection: Collection, split: str, queries: int) -> str:
    """Make the page, of queries that are drawn from those with negatives, the same in every call.

    Raises:
        InputError: no such split, its labels are no relevance, or no query has a relevant document and negatives.
    """
    groups = collection.judged_groups(split)
    positive_groups, negative_groups = (group_of(groups, np.flatnonzero(flags)) for flags in _kinds(groups.labels))
    candidates = np.intersect1d(positive_groups, negative_groups)
    if not len(candidates):
        raise InputError(
            f"{collection.directory}: no query of split {split} has a relevant document and negatives: mine some"
        )
    sample = np.sort(keyed_rng("explained negatives").permutation(candidates)[:queries]).tolist()
    mined = 0 if groups.found_by is None else int(np.count_nonzero(groups.found_by[groups.labels <= 0]))
    about = (
        f"{len(sample):,} of {len(candidates):,} queries that have a relevant document and negatives, drawn at random; "
        f"{len(negative_groups) - mined:,} negatives given, {mined:,} mined. Relevant documents have a bar, the "
        f"query's words are marked; of each kind the first {SHOWN} are shown. A negative that answers its query is a "
        "false one."
    )
    shown = [_group(collection, groups, i) for i in sample]
    return page(f"{collection.directory}: negatives of {split}", [note(about), section("Queries", *shown)])


def _kinds(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which candidates are relevant, and which are negatives, both bool [n]."""
    return labels > 0, labels <= 0


def _group(collection: Collection, groups: Groups, i: int) -> str:
    query, documents, labels = groups[i]
    text = collection.queries.text(query)
    words, start = words_of(text), int(groups.candidates.ends[i]) - len(documents)

    def passages(places: np.ndarray, *, relevant: bool) -> Iterator[str]:
        for place in places[:SHOWN].tolist():
            document = int(documents[place])
            about = " · ".join([collection.corpus.ids[document], *_origin(collection, groups, start + place)])
            yield passage(about, collection.corpus.text(document), words, relevant=relevant)

    relevant, negatives = map(np.flatnonzero, _kinds(labels))
    lists = {
        f"{len(relevant)} relevant": passages(relevant, relevant=True),
        f"{len(negatives)} negatives": passages(negatives, relevant=False),
    }
    return side_by_side(text, lists)


def _origin(collection: Collection, groups: Groups, at: int) -> Iterator[str]:
    """Yield which system found a negative with which score, or that it was given; and a teacher's score, if any."""
    number = 0 if groups.found_by is None else int(groups.found_by[at])
    if not number and groups.labels[at] <= 0:
        yield "given"
    elif number and groups.found_scores is not None:
        yield f"{collection.manifest['mined'][number - 1]} {groups.found_scores[at]:.4g}"
    if groups.scores is not None and not np.isnan(groups.scores[at]):
        yield f"teacher {groups.scores[at]:.4g}"
