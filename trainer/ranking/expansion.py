"""Expand documents by the terms that a TILDE finds likeliest, for TILDEv2 and BM25 (Zhuang and Zuccon, 2021b).

A stopped command resumes: the terms of each block of distinct texts are in a file beside the new collection.

OUT.terms/made_of.json    the collection, the model and the number of terms
OUT.terms/NNNNNN.npy      int32 [texts of the block, terms], best first, padded with -1
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deepsiam.data_prep.common.files import save_array
from deepsiam.data_prep.common.progress import meter
from deepsiam.models.matching.tilde import terms_in
from deepsiam.trainer.ranking.rankers.likelihoods import LikelihoodRanker
from deepsiam.trainer.ranking.retrieval.encode import distinct, require_finite
from deepsiam.trainer.ranking.retrieval.resumable import open_work_folder

BLOCK = 4096  # texts


def likeliest_terms(ranker: LikelihoodRanker, number: int, folder: Path) -> Iterator[np.ndarray]:
    """Yield the ids of the likeliest terms that each document of the ranker's collection lacks; ties go to smaller ids.

    Raises:
        InputError: the work folder belongs to another collection, model or number; a likelihood is not finite.
    """
    corpus, framing = ranker.collection.corpus, ranker.documents.framing
    by = {"model": ranker.identity["fingerprint"], "precision": ranker.precision}
    made_of = {"collection": ranker.collection.sha256, **by, "terms": number}
    open_work_folder(folder, made_of, "collection, model, --precision or --terms")
    of_text, first = distinct(framing.cut(corpus.tokens(i)) for i in range(len(corpus)))
    files = [folder / f"{start // BLOCK:06d}.npy" for start in range(0, len(first), BLOCK)]
    with meter("expand", "texts", len(first)) as report:
        for i, file in enumerate(files):
            documents = first[i * BLOCK : (i + 1) * BLOCK].tolist()
            if not file.is_file():
                texts = [framing.cut(corpus.tokens(document)) for document in documents]
                save_array(file, _terms(ranker, texts, number))
            report(i * BLOCK + len(documents), "")
    blocks = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
    for text in of_text.tolist():
        terms = blocks[text // BLOCK][text % BLOCK]
        yield terms[terms >= 0]


def _terms(ranker: LikelihoodRanker, texts: list[np.ndarray], number: int) -> np.ndarray:
    """Return the terms of some texts, int32 [n, number], padded with -1."""
    allowed = terms_in(ranker.loaded.tokenizer)
    terms = np.full((len(texts), number), -1, np.int32)
    for batch, vectors, _ in ranker.documents.batches(texts):
        require_finite(vectors, "expand")
        for text, likelihoods in zip(batch, vectors, strict=True):
            free = allowed.copy()
            free[texts[text]] = False
            candidates = np.flatnonzero(free)
            best = candidates[np.argsort(-likelihoods[candidates], kind="stable")[:number]]
            terms[text, : len(best)] = best
    return terms
