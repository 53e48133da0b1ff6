"""The pieces that benchmarks.costs.quick measures, each of a second or less, and the calibration that is its unit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common.made_up_shards import Reading, write_shards
from benchmarks.common.made_up_sparse import SparseSizes, sparse_pool
from benchmarks.costs.pieces import Work, text_to_shards, train_step
from deepsiam.data_prep.shards.verify import verify
from deepsiam.trainer.ranking.retrieval.search import search
from deepsiam.trainer.ranking.retrieval.sparse import search_postings

STEPS = {
    "SEED": "demo_seed.yaml",
    "masked LM": "mlm_small.yaml",
    "Cross-Thought": "cross_thought_small.yaml",
    "Poly": "poly_small.yaml",
    "ICT": "ict_small.yaml",
}
LANES, WINDOW = 4, 4  # of the loader
QUERIES, WIDTH, BEST = 256, 192, 100  # of the search
TERMS, VOCABULARY = 100, 30_522  # of a sparse text


class Piece(NamedTuple):
    """Some work, and the name of its calibration in `benchmarks.common.calibration`."""

    work: Work
    calibration: str


@dataclass(frozen=True)
class PieceSizes:
    """How much work the pieces are."""

    changes: tuple[str, ...] = ()  # to the recipes
    megabytes: float = 0.25  # of text that becomes shards
    tokens: int = 2_000_000  # in the shards that are read
    micro_batches: int = 32
    verified: int = 3  # times
    pool: int = 20_000  # documents that are searched


FULL = PieceSizes()


def pieces(folder: Path, sizes: PieceSizes) -> dict[str, Piece]:
    """Prepare all pieces, with their files in `folder`."""
    steps = {f"{name}, a step": Piece(train_step(recipe, sizes.changes), "arrays") for name, recipe in STEPS.items()}
    reading = Reading(write_shards(folder, sizes.tokens), LANES, WINDOW)
    rng = np.random.default_rng(0)
    queries, pool = (rng.standard_normal((n, WIDTH), dtype=np.float32) for n in (QUERIES, sizes.pool))
    sparse = SparseSizes(sizes.pool, terms=TERMS, vocabulary=VOCABULARY, queries=QUERIES, query_terms=24, best=BEST)
    return {
        **steps,
        "SEED's micro-batches": Piece(partial(_draw, reading, sizes.micro_batches), "python"),
        "text to shards": Piece(text_to_shards(sizes.megabytes, folder), "python"),
        "verify shards": Piece(partial(_verify, reading, sizes.verified), "python"),
        "search a pool": Piece(partial(search, queries, pool, BEST), "arrays"),
        "search sparse texts": Piece(partial(search_postings, *sparse_pool(sparse), BEST), "arrays"),
    }


def _draw(reading: Reading, micro_batches: int) -> None:
    deque(islice(reading.micro_batches(workers=0), micro_batches), maxlen=0)


def _verify(reading: Reading, times: int) -> None:
    for _ in range(times):
        problems = verify(reading.manifest.directory)
        assert not problems, problems
