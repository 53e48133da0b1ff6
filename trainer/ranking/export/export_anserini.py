"""Sparse documents as JSON lines with integer weights: Anserini's JsonVectorCollection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.common.files import make_directory, whole_file
from deepsiam.data_prep.common.progress import track

SCALE = 100  # a weight is stored as the nearest integer to this many times itself


def write(texts: Iterable[tuple[int, np.ndarray]], corpus: Texts, vocabulary: Mapping[str, int], file: Path) -> None:
    """Write a line `{"id", "contents", "vector": {term: integer}}` for each document, completely or not at all.

    Args:
        texts: each document's number and terms, of `retrieval.sparse.term_type`.
        corpus: the documents.
        vocabulary: the numbers of the terms.
        file: the file to write.

    Raises:
        InputError: the file cannot be written.
    """
    names = {number: name for name, number in vocabulary.items()}
    make_directory(file.parent)
    with whole_file(file) as opened:
        for document, terms in track(texts, "write", "documents", len(corpus)):
            weights = np.rint(terms["weight"].astype(np.float64) * SCALE).astype(np.int64)
            pairs = zip(terms["term"].tolist(), weights.tolist(), strict=True)
            vector = {names.get(term, f"[{term}]"): weight for term, weight in pairs if weight > 0}
            line = {"id": corpus.ids[document], "contents": corpus.text(document), "vector": vector}
            opened.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
