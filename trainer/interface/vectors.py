"""The vectors of texts as Python users get them: an array, a list of arrays, or a sparse array; and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.rankers.dense import DenseRanker
from deepsiam.trainer.ranking.rankers.sparse import SparseRanker
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder, TextVectors
from deepsiam.trainer.ranking.retrieval.sparse import SparseSystem, term_type
from deepsiam.trainer.ranking.retrieval.system import Embedded, Scored, ScoresAll

Stored = Literal["fp32", "fp16", "int8", "binary"]


def encode(ranker: VectorRanker, encoder: TextEncoder, texts: Sequence[np.ndarray]) -> Any:
    """Encode texts, given their token ids, in the form of `Model.encode_query`.

    Raises:
        InputError: a vector is not finite, or scipy is not installed, which sparse arrays are of.
    """
    if isinstance(ranker, DenseRanker):
        return encoder.embeddings(texts) if texts else np.empty((0, ranker.width), np.float32)
    if not isinstance(ranker, SparseRanker):
        if not texts:
            return []
        encoded = encoder.vectors(texts)
        return [encoded.of(number) for number in encoded.rows.tolist()]
    require("evaluate", "scipy", feature="a sparse model's vectors")
    from scipy.sparse import csr_array

    if not texts:
        return csr_array((0, ranker.vocabulary), dtype=np.float32)
    encoded = encoder.vectors(texts)
    flat, ends = encoded.joined(encoded.rows), np.append(0, encoded.counts(encoded.rows).cumsum())
    terms, weights = (np.ascontiguousarray(flat[name]) for name in ("term", "weight"))
    return csr_array((weights, terms, ends), shape=(len(texts), ranker.vocabulary))


def check_precision(ranker: VectorRanker, precision: str) -> None:
    """Raise InputError if the vectors of a model cannot have this precision; see `Model.encode_query`."""
    if precision not in get_args(Stored):
        raise InputError(f"precision: {precision!r} is not one of {', '.join(get_args(Stored))}")
    if precision == "fp32":
        return
    if not isinstance(ranker, DenseRanker):
        raise InputError(f"precision: {precision} is for models of one vector per text, and {ranker.title} is none")
    if precision == "int8" and ranker.method.similarity != "cosine":
        raise InputError(f"precision: int8 needs vectors of length 1, and {ranker.title} compares by inner products")


def in_fewer_bytes(encoded: Any, precision: Stored) -> Any:
    """Return vectors, fp32 [..., H] where they are not to stay as they are, in a precision that was checked."""
    if precision == "fp16":
        return encoded.astype(np.float16)
    if precision == "int8":
        return np.rint(127 * encoded).astype(np.int8)
    return np.packbits(encoded > 0, axis=-1) if precision == "binary" else encoded


def scores(ranker: VectorRanker, queries: Any, documents: Any) -> np.ndarray:
    """Score documents for queries, fp32 [Q, D]; both in a form of `encode` or `as_tensors`."""
    asked, found = _rows(queries, ranker), _rows(documents, ranker)
    if not (len(asked.rows) and len(found.rows)):
        return np.empty((len(asked.rows), len(found.rows)), np.float32)
    if isinstance(ranker, DenseRanker):
        system: ScoresAll = Embedded(np.asarray(asked.flat), np.asarray(found.flat))
    elif isinstance(ranker, SparseRanker):
        system = SparseSystem(asked, found)
    else:
        system = Scored(ranker.model.score, asked, found, ranker.device)
    return system.scores(slice(0, len(asked.rows)))


def is_sparse(encoded: Any) -> bool:
    """Return whether vectors are a sparse array."""
    return hasattr(encoded, "indptr")


def as_tensors(encoded: Any) -> Any:
    """Turn the form of `encode` into torch tensors: one, a list of them, or a sparse one."""
    if isinstance(encoded, list):
        return list(map(torch.from_numpy, encoded))
    if is_sparse(encoded):
        numbers = np.stack(encoded.nonzero())
        return torch.sparse_coo_tensor(torch.from_numpy(numbers), encoded.data, encoded.shape, check_invariants=False)
    return torch.from_numpy(encoded)


def _rows(encoded: Any, ranker: VectorRanker) -> TextVectors:
    """Return the vectors of some texts, or of a single one, as a system takes them."""
    if isinstance(ranker, SparseRanker):
        if isinstance(encoded, torch.Tensor):
            from scipy.sparse import csr_array

            coalesced = encoded.coalesce()
            places = tuple(coalesced.indices().numpy())
            encoded = csr_array((coalesced.values().numpy(), places), shape=encoded.shape)
        flat = np.empty(encoded.nnz, term_type())
        flat["term"], flat["weight"] = encoded.indices, encoded.data
        return TextVectors(flat, encoded.indptr[1:].astype(np.int64), np.arange(encoded.shape[0]))
    if isinstance(ranker, DenseRanker):
        if np.asarray(encoded).dtype.kind in "iu":
            raise InputError("similarity: takes vectors of precision fp32 or fp16, not codes")
        flat = np.atleast_2d(np.asarray(encoded, np.float32))
        return TextVectors(flat, np.arange(1, len(flat) + 1), np.arange(len(flat)))
    arrays = [np.asarray(array, np.float32) for array in (encoded if isinstance(encoded, list) else [encoded])]
    flat = np.concatenate(arrays) if arrays else np.empty((0, 0), np.float32)
    return TextVectors(flat, np.cumsum([len(array) for array in arrays], dtype=np.int64), np.arange(len(arrays)))
