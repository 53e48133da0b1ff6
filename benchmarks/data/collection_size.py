"""What a large collection costs to open and to read: seconds, and a host's memory with several processes.

    python -m benchmarks.data.collection_size [--texts 8800000] [--processes 4] [--out PATH]   (minutes, 3 GB of disk)

Writes a collection of made-up documents, as long as MS MARCO's passages, without tokenising; opens it in several
processes at once, each of which finds documents by id and reads their tokens. Memory is proportional set size: pages
that processes share count once. Pages of the files are released when memory is needed elsewhere.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.side_by_side import write
from deepsiam.data_prep.collections.collection import FORMAT, MANIFEST, SPLITS, Collection
from deepsiam.data_prep.collections.format import Text, Where
from deepsiam.data_prep.collections.write_texts import write_texts
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers

TOKENS = 64  # of a document
READS = 2_000  # documents that each process looks up by id and reads
HERE = Where(Path("made up"), 1)


def make(folder: Path, texts: int, queries: int = 1) -> None:
    """Write a collection of `texts` made-up documents, and of queries, without splits."""
    tokenizer = tokenizers.train([f"word {i}" for i in range(1000)], 300, _parent(folder / "tokenizer.json"))
    counts: dict[str, Any] = {SPLITS: {}}
    for part, number in (("corpus", texts), ("queries", queries)):

        def documents(number: int = number) -> Iterator[Text]:
            return (Text(str(i), [f"document {i}"], HERE) for i in range(number))

        write_texts(folder / part, documents, [], repeats=False)
        ends = np.arange(1, number + 1, dtype=np.int64) * TOKENS
        np.save(folder / part / "token_ends.npy", ends)
        made_up = np.random.default_rng(number).integers(tokenizer.vocab_size, size=number * TOKENS, dtype=np.int32)
        np.save(folder / part / "tokens.npy", made_up.astype(tokenizer.dtype))
        counts[part] = {"texts": number, "tokens": number * TOKENS}
    manifest = {
        "format": FORMAT,
        "tokenizer": {"fingerprint": tokenizer.fingerprint},
        "counts": counts,
        "inputs": [],
        "arrays": {},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))


def _parent(path: Path) -> Path:
    make_directory(path.parent)
    return path


def read(folder: Path, seed: int, results: Any, done: Any) -> None:
    """Open the collection, look documents up, read them; report seconds and memory, and wait for the others."""
    before = memory("Pss"), memory("Pss_Anon")
    start = time.perf_counter()
    opened = Collection.open(folder)
    opening = time.perf_counter() - start
    numbers = np.random.default_rng(seed).integers(len(opened.corpus), size=READS)
    start = time.perf_counter()
    found = opened.corpus.ids.find([str(number) for number in numbers])
    tokens = sum(len(opened.corpus.tokens(int(i))) for i in found)
    reading = time.perf_counter() - start
    assert tokens == TOKENS * READS
    assert (found == numbers).all()
    done.wait()  # wait until all have read, so that shared pages count once
    after = memory("Pss"), memory("Pss_Anon")
    results.put({"open": opening, "read": reading, "memory": after[0] - before[0], "own": after[1] - before[1]})
    done.wait()


def memory(kind: str) -> int:
    """Return this process's proportional set size in bytes: of all pages, or only of anonymous ones (Pss_Anon)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{kind}:"))


def measure(folder: Path, texts: int, processes: int) -> dict[str, Any]:
    """Make a collection, and read it from several processes at once."""
    start = time.perf_counter()
    make(folder, texts)
    making = time.perf_counter() - start
    context = multiprocessing.get_context("spawn")
    results, done = context.Queue(), context.Barrier(processes)
    readers = [context.Process(target=read, args=(folder, seed, results, done)) for seed in range(processes)]
    for reader in readers:
        reader.start()
    rows = [results.get() for _ in readers]
    for reader in readers:
        reader.join()
    return {
        "texts": texts,
        "processes": processes,
        "seconds to write": making,
        "seconds to open": max(row["open"] for row in rows),
        f"seconds to find and read {READS}": max(row["read"] for row in rows),
        "memory of all processes, bytes": sum(row["memory"] for row in rows),
        "of it not file pages, bytes": sum(row["own"] for row in rows),
    }


def show(results: dict[str, Any], out: Path) -> None:
    """Print the results, one a line, and write them to a file."""
    for name, value in results.items():
        print(f"{name:<40} {value:>16,.3f}" if isinstance(value, float) else f"{name:<40} {value:>16,}")
    write(out, results)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.data.collection_size", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--texts", type=positive, default=8_800_000, metavar="N", help="documents (%(default)s)")
    parser.add_argument("--processes", type=positive, default=4, metavar="N", help="that read at once (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/collection_size.json"), help="(%(default)s)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder) / "collection", chosen.texts, chosen.processes)
    show(results, chosen.out)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.data.collection_size"):
        main()
