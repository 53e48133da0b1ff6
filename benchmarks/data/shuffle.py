"""Compare how well lanes and webdataset's shuffle buffer, with the same memory, shuffle documents.

    python -m benchmarks.data.shuffle [--shards N] [--out PATH]          (seconds)

Documents are numbered in the order of the shards and shuffled for an epoch by lanes (a window of chunks of each lane is
in memory) and by webdataset (shuffled shards, then a buffer of as many documents as all those windows).

    distance moved    mean |place in the order - place in the shards| / documents; 1/3 where the order is random
    pairs adjacent    how many neighbours in the shards are still neighbours
    pairs in a batch  how many neighbours in the shards are in one micro-batch of 32 documents
    pairs in a step   how many are in one optimizer step of 16 micro-batches: one gradient
"""

import argparse
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
import webdataset

from benchmarks.common.side_by_side import write
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.data.lanes import START, Lanes

LANES, WINDOW, CHUNKS_PER_SHARD, DOCUMENTS_PER_CHUNK, MICRO_BATCH = 16, 16, 16, 128, 32


class Numbers:
    """A source whose documents are numbers."""

    def __init__(self, shards: int):
        self.chunks = [CHUNKS_PER_SHARD] * shards

    def fetch_ahead(self, shards: Sequence[int]) -> None:
        pass

    def release(self, shard: int) -> None:
        pass

    def cached_bytes(self, shards: int) -> int:
        return 0

    def name(self, shard: int, chunk: int, item: int) -> str:
        return str(self.read(shard, chunk)[item])

    def read(self, shard: int, chunk: int) -> list[int]:
        first = (shard * CHUNKS_PER_SHARD + chunk) * DOCUMENTS_PER_CHUNK
        return list(range(first, first + DOCUMENTS_PER_CHUNK))


class Unchanged:
    """A batcher whose examples are the documents."""

    def examples(self, documents: Sequence[int]) -> list[int]:
        return list(documents)

    def origins(self, documents: Sequence[int]) -> list[list[int]]:
        return [[i] for i in range(len(documents))]

    def micro_batch(self, examples: Sequence[int], rngs: Iterable[np.random.Generator]) -> MicroBatch:
        return MicroBatch({"documents": np.array(examples)}, {}, 0)


def by_lanes(shards: int) -> np.ndarray:
    """Return the documents of the first epoch in order; the number of shards must be a multiple of the lanes."""
    lanes = Lanes(Numbers(shards), Unchanged(), seed=1, lanes=LANES, window=WINDOW, micro_batch=MICRO_BATCH)
    steps = zip(*(lanes.micro_batches(lane, START) for lane in range(LANES)), strict=True)
    epoch = takewhile(lambda step: not step[0].end.epoch, steps)
    return np.concatenate([batch.micro_batch.arrays["documents"] for step in epoch for batch in step])


def by_webdataset(shards: int, buffer: int) -> np.ndarray:
    """Return the documents of shuffled shards after a shuffle buffer."""
    source = Numbers(shards)
    deal = keyed_rng("deal", 1).permutation(shards)
    numbers = (i for shard in deal for chunk in range(CHUNKS_PER_SHARD) for i in source.read(int(shard), chunk))
    return np.fromiter(webdataset.shuffle(buffer, initial=buffer, seed=1)(numbers), np.int64)


def quality(order: np.ndarray) -> dict[str, float]:
    """Return the measures of an order of the numbers 0 ... n - 1."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return {
        "distance moved": float(np.abs(place - np.arange(len(order))).mean() / len(order)),
        "pairs adjacent": float((np.abs(np.diff(place)) == 1).mean()),
        "pairs in a batch": float((np.diff(place // MICRO_BATCH) == 0).mean()),
        "pairs in a step": float((np.diff(place // (LANES * MICRO_BATCH)) == 0).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shards", type=int, default=256, help="a multiple of 16 (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/shuffle.json"), help="(%(default)s)")
    options = parser.parse_args()
    if options.shards < 1 or options.shards % LANES:
        parser.error(f"--shards must be a multiple of {LANES}")
    total, window = options.shards * CHUNKS_PER_SHARD * DOCUMENTS_PER_CHUNK, WINDOW * DOCUMENTS_PER_CHUNK
    results = {
        f"lanes: {LANES} windows of {window:,} documents": quality(by_lanes(options.shards)),
        f"webdataset: a buffer of {LANES * window:,}": quality(by_webdataset(options.shards, LANES * window)),
        f"webdataset: a buffer of {window:,}": quality(by_webdataset(options.shards, window)),
        "random": quality(np.random.default_rng(1).permutation(total)),
    }
    for name, measures in results.items():
        print(f"{name:<40} " + "  ".join(f"{measure} {value:.5f}" for measure, value in measures.items()))
    write(options.out, {"documents": total, "orders": results})


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.data.shuffle"):
        main()
