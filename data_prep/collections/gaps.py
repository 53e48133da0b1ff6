"""Report what a collection lacks, so that the user knows before training: texts, and relevant documents."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.format import Format
from deepsiam.data_prep.collections.groups import Groups, no_grades, span
from deepsiam.data_prep.collections.relevant import positive_pairs
from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.common.errors import InputError

PRINTED_NAMES = 3  # files in a message


def require_any(count: int, otherwise: str, reader: Format) -> None:
    """Raise InputError with the files, and what was left out of them, if there are no texts or groups."""
    if count:
        return
    files = reader.paths
    remainder = [f"{len(files) - PRINTED_NAMES:,} more"] if len(files) > PRINTED_NAMES else []
    file_names = ", ".join([*map(str, files[:PRINTED_NAMES]), *remainder])
    raise InputError("; ".join([f"{otherwise}: {file_names}", *reader.remarks()]))


def texts_without_words(documents: Texts) -> Iterator[str]:
    """Report how many documents have no tokens, and which is the first."""
    ends = documents.token_rows.ends
    if len(empty_documents := np.flatnonzero(np.diff(ends, prepend=0) == 0)):
        name = documents.called(int(empty_documents[0]))
        yield f"{len(empty_documents):,} of {len(ends):,} documents have no text (the first: {name})"


def labels_and_relevance(splits: Path, reader: Format, queries: Texts) -> Iterator[str]:
    """Report for each written split labels that are no relevance; how many others count as relevant, if they are scores
    or grades of mined documents; and how many queries have no label above 0, and which is the first.

    Such a query gives no example when training by relevance, and its metrics are 0 in evaluation.
    """
    for name in reader.splits():
        groups = Groups.map(splits / name)
        labels = groups.labels
        if problem := no_grades(labels):
            yield f"split {name}: {problem}: they are scores, from which only the losses kl and margin_mse learn"
            continue
        if reader.is_mined(name) and not np.isin(labels, (0, 1)).all():
            relevant = f"{np.count_nonzero(labels > 0):,} of {len(labels):,}"
            yield f"split {name}: its labels are grades {span(labels)}: those above 0, {relevant}, count as relevant"
        judged_queries = np.unique(groups.queries)
        gaps = np.setdiff1d(judged_queries, positive_pairs(groups)[0])
        if len(gaps):
            query = queries.called(int(gaps[0]))
            counts = f"{len(gaps):,} of {len(judged_queries):,} queries"
            yield f"split {name}: {counts} have no relevant document (the first: {query})"
