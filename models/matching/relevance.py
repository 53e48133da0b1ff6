"""Which texts of a batch are compared with which: rows that must find their columns.

    columns:          documents   queries
    rows: queries        x           s        x: always            s: with `same_side`
          documents      s           b        b: with `both_directions`, s only then

The rows are the queries, then each query's own document. The columns are all documents, the queries' own first, then
the queries. Row i of a query finds document i, and that of the document finds query i.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from deepsiam.models.vectors import Vectors

QUERY, DOCUMENT = 1, 2  # the key of a text's side


class Sides(NamedTuple):
    """What is compared beside queries with documents."""

    both_directions: bool = False  # a document must find its query, too
    same_side: bool = False  # a text is compared with the others of its side, too

    @property
    def has_query_columns(self) -> bool:
        """Whether queries are found or compared with."""
        return self.both_directions or self.same_side

    def vectors(self, queries: Vectors, documents: Vectors) -> tuple[Vectors, Vectors]:
        """Return the vectors of rows and of columns."""
        rows = columns = None
        if self.both_directions:
            rows = _all_texts(queries, Vectors(*(array[: len(queries.mask)] for array in documents)))
        if self.has_query_columns:
            columns = _all_texts(documents, queries)
        return rows or queries, columns or documents

    def candidates(self, of_queries: np.ndarray, documents: int) -> np.ndarray:
        """Return the columns of each row's candidates, int64 [R, n], of the queries' [Q, n]; -1: none."""
        if not self.both_directions:
            return of_queries
        of_documents = np.full_like(of_queries, -1)
        of_documents[:, 0] = documents + np.arange(len(of_queries))
        return np.concatenate([of_queries, of_documents])


def relevance(
    documents: np.ndarray, never: Sequence[np.ndarray], sides: Sides, *, of_step: bool
) -> dict[str, np.ndarray]:
    """Return the arrays that mark which columns each row is compared with: its own, and all irrelevant texts.

    Args:
        documents: the keys of each document, int64 [D] or [D, k]; document i is query i's own.
        never: the keys of what is no negative of query i, int64. With queries among the columns its own text is one:
            texts are no negatives of each other whose keys have one in common.
        sides: what is compared.
        of_step: leave it to `allowed_columns`, with the columns of the whole step.
    """
    rows, columns, positives = list(never), documents, np.arange(len(never))
    if sides.has_query_columns:
        by_document = documents.reshape(len(documents), -1)
        width = max(by_document.shape[1], *map(len, never))
        of_documents = np.pad(by_document, ((0, 0), (0, width - by_document.shape[1])), mode="edge")
        of_sides = ((of_documents, DOCUMENT), (_padded(never, width), QUERY))
        columns = np.concatenate([np.insert(keys, width, side, axis=1) for keys, side in of_sides])
        if not sides.same_side:  # the key of its side excludes all columns of it
            rows = [np.append(row, QUERY) for row in never]
    if sides.both_directions:
        rows += list(never) if sides.same_side else [np.append(row, DOCUMENT) for row in never]
        positives = np.append(positives, len(documents) + positives)
    if of_step:
        return {"document_keys": columns, "relevant_keys": _padded(rows, max(map(len, rows)))}
    mask = np.stack([~np.isin(columns, row).reshape(len(columns), -1).any(axis=1) for row in rows])
    mask[np.arange(len(rows)), positives] = True  # its own column is relevant, but compared
    return {"allowed": mask}


def allowed_columns(arrays: Mapping[str, Tensor]) -> Tensor:
    """Return which columns each row is compared with, bool [R, C]: its own, and all irrelevant texts."""
    if "allowed" in arrays:
        return arrays["allowed"]
    keys, relevant, positives = arrays["document_keys"], arrays["relevant_keys"], arrays["candidates"][:, :1]
    mask = torch.ones(len(relevant), len(keys), dtype=torch.bool, device=keys.device)
    for column_keys in keys.view(len(keys), -1).T:  # few; all at once would need [R, C, r]
        for row_keys in relevant.T:
            mask &= column_keys != row_keys[:, None]
    return mask.scatter(1, positives, True)


def _padded(keys: Sequence[np.ndarray], width: int) -> np.ndarray:
    # filled up with a key that the row has: another number might be a text's
    return np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in keys])


def _all_texts(*sides: Vectors) -> Vectors:
    return Vectors(*map(torch.cat, zip(*sides, strict=True)))
