"""Compare with webdataset: the speed of making SEED micro-batches, and of resuming in the middle of an epoch.

    python -m benchmarks.data.loader [--tokens N] [--rounds N] [--out PATH]          (two minutes on two cores)

Three rivals read the same tars of generated documents, each in this process and in one worker process:

    deepsiam   windows of chunks shuffled, micro-batches of 32 blocks of 512 tokens, masks and decoder targets included
    read       webdataset alone: reads the tars, np.load, slices into documents; does not shuffle, pack or mask
    shuffled   the same, then webdataset's shuffle with a buffer of a window's documents, and deepsiam's batcher

A rival's rate is the tokens of text (without special tokens and padding) that it yields in a second. The measurement
starts after half a window of every lane and covers whole windows, so that as much is prefetched at its end as at its
start.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from torch.utils.data import DataLoader

from benchmarks.common.made_up_shards import MICRO_BATCH, Reading, lengthen, resume, write_shards
from benchmarks.common.side_by_side import alternate, in_words, ratios, spread, write
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.environment import usable_cores
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.models.interface import MicroBatch

LANES, WINDOW = 8, 16
LONGER = 16  # resuming is timed in an epoch that is this many times longer
GPU = 700_000  # tokens/s that one GPU trains on

Maker = Callable[[int], Iterator[Any]]  # number of workers -> items


class Readers(Reading):
    """The ways to read one folder of shards; each yields items whose tokens `text_tokens` counts."""

    @property
    def buffer(self) -> int:
        """The number of documents in a window."""
        return self.window * self.manifest.total("documents") // self.manifest.total("chunks")

    def read(self, workers: int) -> Iterator[list[TokenDocument]]:
        return loaded(self._tars(shuffled=False), workers)

    def shuffled(self, workers: int) -> Iterator[MicroBatch]:
        pipeline = webdataset.DataPipeline(self.documents(), self._micro_batches)
        return loaded(pipeline, workers)

    def documents(self) -> webdataset.DataPipeline:
        """Return the shuffled documents of one epoch."""
        shuffle = webdataset.shuffle(self.buffer, initial=self.buffer, seed=1)
        return webdataset.DataPipeline(self._tars(shuffled=True), chain.from_iterable, shuffle)

    def _tars(self, shuffled: bool) -> webdataset.DataPipeline:
        urls = [str(self.manifest.directory / entry.name) for entry in self.manifest.shards]
        shards = webdataset.SimpleShardList(urls, seed=1 if shuffled else None)
        return webdataset.DataPipeline(shards, webdataset.tarfile_to_samples(), webdataset.map(to_documents))

    def _micro_batches(self, documents: Iterable[TokenDocument]) -> Iterator[MicroBatch]:
        batcher, rng = self.batcher, np.random.default_rng(1)
        documents, blocks = iter(documents), []
        while window := list(islice(documents, self.buffer)):
            blocks += batcher.examples(window)
            while len(blocks) >= MICRO_BATCH:
                yield batcher.micro_batch(blocks[:MICRO_BATCH], [rng] * MICRO_BATCH)
                del blocks[:MICRO_BATCH]


def to_documents(sample: dict[str, bytes]) -> list[TokenDocument]:
    """Read one sample as a user of webdataset would: segments are views of the ids."""
    arrays = np.load(io.BytesIO(sample["npz"]))
    ids, ends, documents = arrays["ids"], arrays["segments"].tolist(), arrays["documents"].tolist()
    segments = [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    texts = [segments[start:end] for start, end in zip([0, *documents], documents, strict=False)]
    return [TokenDocument(text) for text in texts]


def loaded(dataset: webdataset.DataPipeline, workers: int) -> Iterator[Any]:
    """Iterate over the dataset, directly or through a DataLoader with our settings."""
    if not workers:
        return iter(dataset)
    return iter(DataLoader(dataset, None, num_workers=workers, collate_fn=_unchanged, prefetch_factor=4))


def _unchanged(item: Any) -> Any:
    return item


def text_tokens(item: MicroBatch | list[TokenDocument]) -> int:
    if isinstance(item, MicroBatch):
        return int((item.arrays["original_ids"] >= len(tokenizer.SPECIAL_TOKENS)).sum())
    return sum(len(segment) for document in item for segment in document.segments)


def rate(make: Maker, workers: int, first: int, wanted: int) -> float:
    """Measure tokens a second after the `first` ones, over `wanted` more."""
    items = make(workers)
    take(items, first)
    start = time.perf_counter()
    return take(items, wanted) / (time.perf_counter() - start)


def take(items: Iterator[Any], wanted: int) -> int:
    """Take items until they have `wanted` tokens; return how many tokens they have."""
    tokens = 0
    while tokens < wanted:
        tokens += text_tokens(next(items))
    return tokens


def re_read(rivals: Readers) -> float:
    """Measure seconds until half of the documents have passed webdataset's shuffle, from the start."""
    start = time.perf_counter()
    for _ in islice(rivals.documents(), rivals.manifest.total("documents") // 2):
        pass
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=16_000_000, help="of an epoch (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=3, help="how often each rival runs (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/loader.json"), help="(%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_shards(Path(folder), options.tokens)
        results = {"tokens": manifest.total("tokens")} | throughput(Readers(manifest, LANES, WINDOW), options.rounds)
        longer = lengthen(manifest, Path(folder) / "longer", LONGER)
        results["resume"] = {"tokens": longer.total("tokens")} | resuming(
            Readers(longer, LANES, WINDOW), options.rounds
        )
    write(options.out, results)


def throughput(rivals: Readers, rounds: int) -> dict[str, Any]:
    """Measure and print rates and their ratios, by the number of workers."""
    tokens = rivals.manifest.total("tokens")
    windows = rivals.lanes * rivals.window * tokens // rivals.manifest.total("chunks")  # one of every lane
    wanted = (tokens - windows // 2) // windows * windows
    if wanted <= 0:
        raise InputError(f"--tokens: {windows * 3 // 2:,} or more, so that every lane has a window and a half")
    makers: dict[str, Maker] = {"deepsiam": rivals.micro_batches, "read": rivals.read, "shuffled": rivals.shuffled}
    results: dict[str, Any] = {}
    for where, workers in {"1 worker": 1, "this process": 0}.items():
        rates = alternate(
            {name: partial(rate, make, workers, windows // 2, wanted) for name, make in makers.items()}, rounds
        )
        for name, values in rates.items():
            print(in_words(f"{where}: {name}", spread(values), "tokens/s"))
        compared = {f"deepsiam / {name}": ratios(rates["deepsiam"], rates[name]) for name in ("read", "shuffled")}
        for name, numbers in compared.items():
            print(in_words(f"{where}: {name}", numbers))
        results[where] = {"tokens/s": rates, **compared}
    one, cores = spread(results["1 worker"]["tokens/s"]["deepsiam"])["median"], usable_cores()
    print(f"GPUs fed at {GPU:,} tokens/s each: {one / GPU:.1f} by one worker, {cores * one / GPU:.1f} by {cores} cores")
    return results | {"GPUs a worker feeds": one / GPU, "cores": cores}


def resuming(rivals: Readers, rounds: int) -> dict[str, Any]:
    """Measure and print seconds to resume in the middle of the epoch, and to re-read from the start."""
    seconds = alternate(
        {
            "one micro-batch": lambda: resume(rivals, 1),
            "one of every lane": lambda: resume(rivals, rivals.lanes),
            "webdataset from the start": lambda: re_read(rivals),
        },
        rounds,
    )
    for name, values in seconds.items():
        print(in_words(f"resume: {name}", spread(values), "s"))
    again = seconds.pop("webdataset from the start")
    compared = {f"webdataset / deepsiam, {name}": ratios(again, values) for name, values in seconds.items()}
    for name, numbers in compared.items():
        print(in_words(f"resume: {name}", numbers))
    return {"seconds": {**seconds, "webdataset from the start": again}, **compared}


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.data.loader"):
        main()
