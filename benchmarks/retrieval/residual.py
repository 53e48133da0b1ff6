"""Vectors stored in a few bits, compared with half precision: bytes, building, exact search, and what is found."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.side_by_side import ratios, rounds, spread
from deepsiam.models.matching.colbert import Colbert
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.kmeans import TRAINED_ON
from deepsiam.trainer.ranking.indexes.residual import (
    BITS,
    HELD_OUT,
    Codec,
    Residuals,
    centroids_for,
    fit,
    unit,
    with_buckets,
)
from deepsiam.trainer.ranking.retrieval.encode import Rows, TextVectors
from deepsiam.trainer.ranking.retrieval.search import Ranking, best
from deepsiam.trainer.ranking.retrieval.system import Scored

FP16, COMPARED = "float16", "residual2"
DEPTH, PART = 10, 10  # documents compared; what 1, 2 and 4 bits find is measured on one in so many texts


@dataclass(frozen=True)
class ResidualSizes:
    """Texts whose vectors lie around random directions, and queries near texts."""

    vectors: int
    width: int
    of_a_text: int
    directions: int
    noise: float  # length of what is added to a direction of length 1
    queries: int
    of_a_query: int


def measure(sizes: ResidualSizes, seconds: float) -> dict[str, Any]:
    """Build once; compare exact search with fp16's within about `seconds`; see what each number of bits finds."""
    end = time.monotonic() + seconds
    exact, queries = made_up(sizes)
    sample = exact[np.random.default_rng(1).permutation(len(exact))[: TRAINED_ON * centroids_for(len(exact))]]
    stored, figures = build(exact, sample.astype(np.float32))
    some = exact[: sizes.of_a_text * (len(exact) // sizes.of_a_text // PART)]
    first = best_of(sizes, some, queries)
    for dtype, bits in BITS.items():
        codec = with_buckets(stored.codec.centroids, sample[: len(sample) // HELD_OUT].astype(np.float32), bits)
        found = best_of(sizes, codec.decode(codec.encode(some)), queries)
        shares = [np.isin(*pair).mean() for pair in zip(first.documents, found.documents, strict=True)]
        figures[f"share of {FP16}'s first {DEPTH}, {dtype}"] = float(np.mean(shares))
    rivals: dict[str, Rows] = {FP16: exact, COMPARED: stored}
    results: dict[str, Any] = {"unit": "queries/s", "rates": {}, "ratios": {}, "figures": figures}
    for number, share in ((1, 0.3), (sizes.queries, 1.0)):
        searches = {
            name: partial(cpu_seconds, partial(best_of, sizes, rival, queries[:number]))
            for name, rival in rivals.items()
        }
        now = time.monotonic()
        spent = rounds(searches, now + share * (end - now))
        rates = {name: [number / value for value in values] for name, values in spent.items()}
        results["rates"] |= {f"{name}, {number} at once": spread(values) for name, values in rates.items()}
        results["ratios"][f"{COMPARED} / {FP16}, {number} at once"] = ratios(rates[COMPARED], rates[FP16])
    return results


def made_up(sizes: ResidualSizes) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts' vectors, fp16 [vectors, width], and the queries', fp32 [queries, of_a_query, width]."""
    rng = np.random.default_rng(0)
    directions = unit(rng.standard_normal((sizes.directions, sizes.width), dtype=np.float32))
    of_vectors = rng.integers(sizes.directions, size=(sizes.vectors // sizes.of_a_text, sizes.of_a_text))
    near = rng.integers(len(of_vectors) // PART, size=sizes.queries)  # among those that recall is measured on
    of_queries = rng.permuted(np.resize(of_vectors[near], (sizes.queries, sizes.of_a_query)), axis=1)

    def around(numbers: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((*numbers.shape, sizes.width), dtype=np.float32)
        return unit(directions[numbers] + noise * np.float32(sizes.noise / sizes.width**0.5))

    exact = np.concatenate([around(of_text).astype(np.float16) for of_text in of_vectors])
    return exact, np.stack([around(of_query) for of_query in of_queries])


def build(exact: np.ndarray, sample: np.ndarray) -> tuple[Residuals, dict[str, float]]:
    """Make the codec and the rows as trainer.index does from encoded vectors; return also what that took."""
    held_out, wanted = len(sample) // HELD_OUT, centroids_for(len(exact))
    codecs: list[Codec] = []
    rows: list[np.ndarray] = []
    training = cpu_seconds(lambda: codecs.append(fit(sample[held_out:], sample[:held_out], wanted, BITS[COMPARED])))
    encoding = cpu_seconds(lambda: rows.append(codecs[0].encode(exact)))
    figures = {
        "centroids": len(codecs[0].centroids),
        "CPU seconds of the codec": training,
        "CPU seconds of the rows": encoding,
        "bytes of a vector": codecs[0].row,
        "bytes of a vector, with its share of the codec": codecs[0].row + codecs[0].centroids.nbytes / len(exact),
    }
    return Residuals(Blocks(rows), codecs[0], np.nan, IndexFolder(Path(), {})), figures


def best_of(sizes: ResidualSizes, stored: Rows, queries: np.ndarray) -> Ranking:
    """Search all texts as a multi-vector index does."""
    texts = len(stored) // sizes.of_a_text
    documents = TextVectors(stored, np.arange(1, texts + 1) * sizes.of_a_text, np.arange(texts))
    numbers = np.arange(len(queries))
    encoded = TextVectors(queries.reshape(-1, sizes.width), (numbers + 1) * sizes.of_a_query, numbers)
    score = partial(Colbert.score, None)  # type: ignore[arg-type]  # it needs no weights
    return best(Scored(score, encoded, documents, dtype=torch.float64).table(numbers, np.arange(texts)), DEPTH)
