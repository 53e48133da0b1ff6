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
from models.matching.colbert import Colbert
from trainer.ranking.indexes.blocks import Blocks
from trainer.ranking.indexes.folder import Folder
from trainer.ranking.indexes.kmeans import TRAINED_ON
from trainer.ranking.indexes.residual import BITS, HELD_OUT, Codec, Residuals, centroids_for, fit, unit
from trainer.ranking.retrieval.encode import Rows, TextVectors
from trainer.ranking.retrieval.search import Ranking, best
from trainer.ranking.retrieval.system import Scored

FP16, COMPARED = "float16", "residual2"
DEPTH = 10


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
    """Build once with each number of bits; compare exact search with fp16's within about `seconds`."""
    end = time.monotonic() + seconds
    exact, queries = made_up(sizes)
    stored: dict[str, Rows] = {FP16: exact}
    figures: dict[str, float] = {f"bytes of a vector, {FP16}": 2 * sizes.width}
    for dtype, bits in BITS.items():
        stored[dtype] = build(sizes, exact, dtype, bits, figures)
    first = best_of(sizes, exact, queries)
    for dtype in BITS:
        pairs = zip(first.documents, best_of(sizes, stored[dtype], queries).documents, strict=True)
        figures[f"share of {FP16}'s first {DEPTH}, {dtype}"] = float(np.mean([np.isin(*pair).mean() for pair in pairs]))
    results: dict[str, Any] = {"unit": "queries/s", "rates": {}, "ratios": {}, "figures": figures}
    for number in sorted({1, sizes.queries}):
        searches = {
            dtype: partial(cpu_seconds, partial(best_of, sizes, stored[dtype], queries[:number]))
            for dtype in (FP16, COMPARED)
        }
        share = end - time.monotonic() if number > 1 else (end - time.monotonic()) / 3
        rates = {
            dtype: [number / value for value in values]
            for dtype, values in rounds(searches, time.monotonic() + share).items()
        }
        at_once = f"{number} at once"
        results["rates"] |= {f"{dtype}, {at_once}": spread(values) for dtype, values in rates.items()}
        results["ratios"][f"{COMPARED} / {FP16}, {at_once}"] = ratios(rates[COMPARED], rates[FP16])
    return results


def made_up(sizes: ResidualSizes) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts' vectors, fp16 [vectors, width], and the queries', fp32 [queries, of_a_query, width]."""
    rng = np.random.default_rng(0)
    directions = unit(rng.standard_normal((sizes.directions, sizes.width), dtype=np.float32))
    of_vectors = rng.integers(sizes.directions, size=(sizes.vectors // sizes.of_a_text, sizes.of_a_text))
    near = rng.integers(len(of_vectors), size=sizes.queries)
    of_queries = rng.permuted(np.resize(of_vectors[near], (sizes.queries, sizes.of_a_query)), axis=1)

    def around(numbers: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((*numbers.shape, sizes.width), dtype=np.float32)
        return unit(directions[numbers] + noise * np.float32(sizes.noise / sizes.width**0.5))

    exact = np.concatenate([around(of_text).astype(np.float16) for of_text in of_vectors])
    return exact, np.stack([around(of_query) for of_query in of_queries])


def build(sizes: ResidualSizes, exact: np.ndarray, dtype: str, bits: int, figures: dict[str, float]) -> Residuals:
    """Make the codec and the rows as trainer.index does from encoded vectors, and add what that took."""
    wanted = centroids_for(sizes.vectors)
    made: list[Codec] = []

    def train() -> None:
        drawn = np.random.default_rng(1).permutation(sizes.vectors)[: TRAINED_ON * wanted]
        sample = exact[drawn].astype(np.float32)
        made.append(fit(sample[len(drawn) // HELD_OUT :], sample[: len(drawn) // HELD_OUT], wanted, bits))

    figures[f"CPU seconds of the codec, {dtype}"] = cpu_seconds(train)
    rows: list[np.ndarray] = []
    figures[f"CPU seconds of the rows, {dtype}"] = cpu_seconds(lambda: rows.append(made[0].encode(exact)))
    figures[f"centroids, {dtype}"] = len(made[0].centroids)
    figures[f"bytes of a vector, {dtype}"] = (rows[0].nbytes + made[0].centroids.nbytes) / sizes.vectors
    return Residuals(Blocks(rows), made[0], np.nan, Folder(Path(), {}))


def best_of(sizes: ResidualSizes, stored: Rows, queries: np.ndarray) -> Ranking:
    """Search all texts as a multi-vector index does."""
    texts = len(stored) // sizes.of_a_text
    documents = TextVectors(stored, np.arange(1, texts + 1) * sizes.of_a_text, np.arange(texts))
    numbers = np.arange(len(queries))
    encoded = TextVectors(queries.reshape(-1, sizes.width), (numbers + 1) * sizes.of_a_query, numbers)
    score = partial(Colbert.score, None)  # type: ignore[arg-type]  # it needs no weights
    return best(Scored(score, encoded, documents, dtype=torch.float64).table(numbers, np.arange(texts)), DEPTH)
