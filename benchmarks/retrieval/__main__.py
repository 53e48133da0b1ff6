"""Search compared with what its users would run instead, and the cost of its whole path and of refreshed negatives.

    OMP_NUM_THREADS=1 python -m benchmarks.retrieval [--parts ...] [--minutes 25] [--sizes JSON] [--out FILE.json]

encoding  CPU seconds from texts to vectors, compared with SentenceTransformer.encode in its batches of 32 texts of
          similar length: one model, mean pooling, cosine; passages of 60 tokens in the median, log-normal, truncated at
          256; in fp32, and in bf16 where the processor supports it.
search    CPU seconds of exact search for the 100 best of 100,000 vectors of width 768, compared with faiss's
          IndexFlatIP, and the memory that a search takes beyond the vectors.
sparse    CPU seconds of exact search for the 100 best of 100,000 texts of some 200 terms each, by queries of 24 terms,
          compared with scipy's product of sparse matrices and with bm25s, and the memory of the texts.
path      CPU seconds and memory of a collection, its index and a search of it, for 10 thousand to a million made-up
          passages, each in a separate process; the encoder has one layer of width 64, so that a million take minutes.
          The exponent of growth is fitted for all three.
residual  CPU seconds to make the codec and the rows of a million vectors of width 128 around made-up directions, and of
          exact search by ColBERT's score, stored in 2 bits compared with half precision, for one query and for several;
          the bytes of a vector, and the share of fp16's first ten that 1, 2 and 4 bits find.
small     CPU seconds of search of 200,000 vectors of width 768 by a byte or a bit for each number, and then by fp16,
          compared with exact search of fp16, for one query and for several; the bytes, and the share of fp16's first
          ten and hundred that is found. The vectors are made up: their i-th component falls off as 1 / sqrt(i).
refresh   The share of a fine-tuning's time that the run spends on mining negatives (ANCE).

All compute in one thread; rivals take turns (A B A B).
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.common import machine
from benchmarks.common.machine import use_one_thread
from benchmarks.common.made_up_pairs import PairSizes
from benchmarks.common.made_up_sparse import SparseSizes
from benchmarks.common.side_by_side import in_words, part_options, run_parts
from benchmarks.retrieval import encoding, refresh, residual, search, small, sparse_search, whole_path
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.extras import require

SIZES: dict[str, Any] = {
    "encoding": PairSizes(layers=6, hidden=384, words=8192, batch=32, micro=32, median=60, longest=256, steps=2),
    "search": search.SearchSizes(texts=100_000, width=768, queries=256, best=100),
    "sparse": SparseSizes(texts=100_000, terms=220, vocabulary=30_522, queries=256, query_terms=24, best=100),
    "path": whole_path.PathSizes(passages=(10_000, 100_000, 1_000_000), words=24, queries=256, hidden=64),
    "residual": residual.ResidualSizes(
        vectors=1_000_000, width=128, of_a_text=20, directions=20_000, noise=0.6, queries=16, of_a_query=32
    ),
    "small": small.SmallSizes(texts=200_000, width=768, queries=256, decay=0.5, noise=0.5),
    "refresh": refresh.RefreshSizes(
        layers=4, hidden=256, words=8192, batch=32, micro=32, median=60, longest=256, steps=30, every=15
    ),
}
PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "encoding": encoding.measure,
    "search": search.measure,
    "sparse": sparse_search.measure,
    "path": whole_path.measure,
    "residual": residual.measure,
    "small": small.measure,
    "refresh": refresh.measure,
}


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    chosen = part_options(argv, "benchmarks.retrieval", __doc__ or "", PARTS, minutes=25.0, out="retrieval.json")
    with exit_on_input_error("benchmarks.retrieval"):
        require("dev", "sentence_transformers", feature="benchmarks.retrieval")
        require("faiss", "faiss", feature="benchmarks.retrieval")
        require("evaluate", "bm25s", feature="benchmarks.retrieval")
        use_one_thread()
        run_parts(chosen, PARTS, SIZES, described(), lines_of)


def described() -> dict[str, Any]:
    """Describe the machine, with the rivals' versions."""
    about = machine.describe()
    about["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "not set")
    packages = ("sentence-transformers", "faiss-cpu", "bm25s", "scipy", "numpy")
    about["versions"] |= {package: importlib.metadata.version(package) for package in packages}
    return about


def lines_of(part: str, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines to print for a part."""
    for name, numbers in results.get("rates", {}).items():
        yield in_words(f"{part}: {name}", numbers, results["unit"])
    for name, numbers in results.get("ratios", {}).items():
        yield in_words(f"{part}: {name}", numbers)
    for name, size in results.get("memory_bytes", {}).items():
        yield f"{part}: memory of {name}: {size / 1e6:,.0f} MB"
    for name, numbers in results.get("growth", {}).items():
        values = ", ".join(f"{value:,.3g}" for value in numbers["values"])
        yield f"{part}: {name}: {values} {numbers['unit']}, exponent {numbers['exponent']:.2f}"
    for name, number in results.get("figures", {}).items():
        yield f"{part}: {name}: {number:.3g}"


if __name__ == "__main__":
    main()
