"""An index of words, ranked by BM25 (retrieval/bm25.py).

bm25/   the arrays (.npy) and the words (JSON) of bm25s; missing where no document has a word
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from deepsiam.data_prep.common.files import whole_folder
from deepsiam.data_prep.common.json_file import Count, Record, read_json
from deepsiam.trainer.ranking.indexes import folder as folders
from deepsiam.trainer.ranking.indexes.folder import REMEDY, IndexFolder
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.retrieval.bm25 import DESCRIPTION, NAME, Bm25, import_bm25s, index_words
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, split_queries_by_rank

LARGEST_VOCABULARY = 1 << 32  # bytes


@dataclass(frozen=True)
class Bm25Index(Index):
    """An opened index of words."""

    words: Any  # a bm25s.BM25, memory-mapped; None where no document has a word

    @classmethod
    def write(cls, ranker: Ranker, directory: Path, dtype: str | None, rank: int, ranks: int) -> None:
        """Index all words on rank 0, from the start if it was stopped; there is no `dtype`."""
        corpus = ranker.collection.corpus
        made_of = folders.about(ranker, len(corpus))
        with rank_0_first(rank, ranks):
            if rank == 0 and not folders.begin(directory, made_of):
                _write(directory / NAME, [corpus.text(i) for i in range(len(corpus))])
                folders.finish(directory, made_of, sorted((directory / NAME).glob("*")))

    @classmethod
    def open(cls, folder: IndexFolder, ranker: Ranker) -> Bm25Index:
        if not any(name.startswith(NAME) for name in folder.manifest["sha256"]):
            return cls(folder, ranker, None)
        _check(folder)
        try:
            words = import_bm25s().BM25.load(folder.directory / NAME, mmap=True, show_progress=False)
        except (OSError, ValueError, EOFError, KeyError, TypeError) as error:
            raise folder.damaged(error) from error
        return cls(folder, ranker, words)

    def __str__(self) -> str:
        return f"{self.folder.manifest['documents']:,} documents; {DESCRIPTION}"

    def search_share(
        self, queries: Sequence[str], k: int, approximation: str | None = None, rank: int = 0, ranks: int = 1
    ) -> list[Ranked]:
        def find(part: slice) -> list[Ranked]:
            return Bm25.of_words(queries[part], self.words, self.folder.manifest["documents"]).rank(k)

        return split_queries_by_rank(find, len(queries), rank, ranks)  # every rank maps the whole index


class _Parameters(Record):
    """What search needs of params.index.json."""

    num_docs: Count
    method: Literal["lucene"]
    dtype: Literal["float32"]
    int_dtype: Literal["int32"]
    backend: Literal["numpy"] = "numpy"


def _check(folder: IndexFolder) -> None:
    """Raise InputError unless the files are a matrix of scores, stored by columns, and the words of its columns."""
    parameters = read_json(folder.directory / NAME / "params.index.json", _Parameters, REMEDY)
    documents = folder.manifest["documents"]
    if parameters.num_docs != documents:
        raise folder.damaged("its number of documents")
    scores = folder.array(f"{NAME}/data.csc.index.npy", [np.float32])
    rows = folder.array(f"{NAME}/indices.csc.index.npy", [np.int32])
    ends = folder.array(f"{NAME}/indptr.csc.index.npy", [np.int32, np.int64])
    if not len(ends) or ends[0] or ends[-1] != len(rows) or (np.diff(ends) < 0).any() or len(scores) != len(rows):
        raise folder.damaged(f"{NAME}: its arrays do not belong together")
    if len(rows) and (rows.min() < 0 or rows.max() >= documents):
        raise folder.damaged(f"{NAME}: it names documents that the collection does not have")
    words = read_json(folder.directory / NAME / "vocab.index.json", dict[str, Count], REMEDY, LARGEST_VOCABULARY)
    if max(words.values(), default=0) >= len(ends):
        raise folder.damaged(f"{NAME}: it has words without a column")


def _write(directory: Path, texts: Sequence[str]) -> None:
    words = index_words(texts)
    if words:
        with whole_folder(directory) as folder:
            words.save(folder, show_progress=False)
    else:
        shutil.rmtree(directory, ignore_errors=True)
