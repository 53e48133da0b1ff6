"""A byte or a bit for each number of a vector, then fp16: bytes, what is found, and queries per CPU second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.side_by_side import ratios, rounds, spread
from deepsiam.trainer.ranking.indexes.blocks import Blocks
from deepsiam.trainer.ranking.indexes.dense import DEPTHS
from deepsiam.trainer.ranking.indexes.residual import unit
from deepsiam.trainer.ranking.indexes.small_vectors import CODES, SAMPLE, IndexCodes, bits_of, bytes_of, ranges_of
from deepsiam.trainer.ranking.retrieval.search import Ranked, search

FP16, BLOCK = "float16", 32_768
Search = Callable[[np.ndarray, int], list[Ranked]]  # queries, how many documents


@dataclass(frozen=True)
class SmallSizes:
    """Texts whose principal components fall off as those of real embeddings do, and queries near texts."""

    texts: int
    width: int
    queries: int
    decay: float  # the i-th component has a standard deviation of i^-decay
    noise: float  # length of what is added to a text's vector of length 1


def measure(sizes: SmallSizes, seconds: float) -> dict[str, Any]:
    """Find out what codes find, and compare their searches with exact search of fp16 within about `seconds`."""
    end = time.monotonic() + seconds
    vectors, queries = made_up(sizes)
    searches: dict[str, Search] = {FP16: lambda some, k: search(some, vectors, k).each()}  # type: ignore[arg-type]
    figures = {f"bytes of a vector, {FP16}": vectors.width * vectors.dtype.itemsize}
    for dtype in CODES:
        codes = coded(vectors, dtype)
        searches[dtype] = partial(found_by, codes, vectors)
        figures[f"bytes of a code, {dtype}"] = codes.bytes / len(vectors)
    for k in DEPTHS:
        exact = searches[FP16](queries, k)
        for dtype in CODES:
            pairs = zip(exact, searches[dtype](queries, k), strict=True)
            shares = [np.isin(one.documents, other.documents).mean() for one, other in pairs]
            figures[f"share of {FP16}'s first {k}, {dtype}"] = float(np.mean(shares))
    results: dict[str, Any] = {"unit": "queries/s", "rates": {}, "ratios": {}, "figures": figures}
    for number, share in ((1, 0.3), (sizes.queries, 1.0)):
        works = {name: partial(cpu_seconds, partial(by, queries[:number], DEPTHS[0])) for name, by in searches.items()}
        now = time.monotonic()
        spent = rounds(works, now + share * (end - now))
        rates = {name: [number / value for value in values] for name, values in spent.items()}
        results["rates"] |= {f"{name}, {number} at once": spread(values) for name, values in rates.items()}
        results["ratios"] |= {f"{name} / {FP16}, {number} at once": ratios(rates[name], rates[FP16]) for name in CODES}
    return results


def made_up(sizes: SmallSizes) -> tuple[Blocks, np.ndarray]:
    """Return the texts' vectors, fp16 [texts, width], and the queries', fp32 [queries, width], all of length 1."""
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.standard_normal((sizes.width, sizes.width)))
    components = (turned * np.arange(1, sizes.width + 1)[:, None] ** -sizes.decay).astype(np.float32)

    def drawn(number: int) -> np.ndarray:
        return unit(rng.standard_normal((number, sizes.width), dtype=np.float32) @ components)

    parts = [drawn(min(BLOCK, sizes.texts - at)).astype(np.float16) for at in range(0, sizes.texts, BLOCK)]
    vectors = Blocks(parts)
    near = vectors[rng.integers(sizes.texts, size=sizes.queries)].astype(np.float32)
    return vectors, unit(near + drawn(sizes.queries) * np.float32(sizes.noise))


def coded(vectors: Blocks, dtype: str) -> IndexCodes:
    """Make the codes as trainer.index does from encoded vectors."""
    if dtype == "binary":
        return IndexCodes(Blocks([bits_of(part) for part in vectors.arrays]), None)
    ranges = ranges_of(vectors[np.random.default_rng(1).integers(len(vectors), size=SAMPLE)])
    return IndexCodes(Blocks([bytes_of(part, ranges) for part in vectors.arrays]), ranges)


def found_by(codes: IndexCodes, vectors: Blocks, queries: np.ndarray, k: int) -> list[Ranked]:
    """Search as an index with codes does."""
    return codes.search(queries, vectors, k)
