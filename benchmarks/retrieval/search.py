"""Exact search, compared with faiss's IndexFlatIP."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import machine
from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.machine import use_one_thread
from benchmarks.common.side_by_side import ratios, rounds, spread
from deepsiam.trainer.ranking.retrieval.search import search

OURS, FAISS = "deepsiam", "faiss IndexFlatIP"


@dataclass(frozen=True)
class SearchSizes:
    """How many vectors are searched, and how wide they are."""

    texts: int
    width: int
    queries: int
    best: int


def works(sizes: SearchSizes) -> dict[str, Callable[[], np.ndarray]]:
    """Return both rivals' work: find the scores of the best of random vectors, fp32 [queries, best]."""
    import faiss

    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(0)
    queries, texts = (rng.standard_normal((n, sizes.width), dtype=np.float32) for n in (sizes.queries, sizes.texts))
    index = faiss.IndexFlatIP(sizes.width)
    index.add(texts)
    return {
        OURS: lambda: search(queries, texts, sizes.best).scores,
        FAISS: lambda: np.asarray(index.search(queries, sizes.best)[0]),
    }


def measure(sizes: SearchSizes, seconds: float) -> dict[str, Any]:
    """Compare queries per CPU second and memory within about `seconds`; check that both find the same scores."""
    end = time.monotonic() + seconds
    memory = {name: memory_of(sizes, name) for name in (OURS, FAISS)}
    rivals = works(sizes)
    np.testing.assert_allclose(rivals[OURS](), rivals[FAISS](), rtol=1e-4, atol=1e-3)
    return {**speeds(rivals, sizes.queries, end), "memory_bytes": memory}


def speeds(rivals: Mapping[str, Callable[[], object]], queries: int, end: float) -> dict[str, Any]:
    """Compare queries per CPU second until about `end`; the ratios are of the first rival to each of the others."""
    spent = rounds({name: partial(cpu_seconds, work) for name, work in rivals.items()}, end)
    rates = {name: [queries / value for value in values] for name, values in spent.items()}
    ours, *others = rates
    return {
        "unit": "queries/s",
        "rounds": len(rates[ours]),
        "rates": {name: spread(values) for name, values in rates.items()},
        "ratios": {f"{ours} / {name}": ratios(rates[ours], rates[name]) for name in others},
    }


def memory_of(sizes: SearchSizes, name: str) -> int:
    """Return the bytes that a search takes beyond the vectors, an index and libraries' buffers, in a new process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, context) as process:
        return process.submit(_grow, sizes, name).result()


def _grow(sizes: SearchSizes, name: str) -> int:
    use_one_thread()
    works(replace(sizes, texts=sizes.queries))[name]()  # a library's own buffers: their size depends on the machine
    rivals = works(sizes)  # keep both: memory that one of them frees would hide what the other takes
    before = machine.highest_resident()
    rivals[name]()
    return machine.highest_resident() - before
