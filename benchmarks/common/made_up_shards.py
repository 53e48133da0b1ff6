"""Made-up shards, the SEED micro-batches of them, and how long a resume in mid-epoch takes."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import tokenizers

from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.manifest import write as write_manifest
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.interface import MicroBatch
from deepsiam.models.pretraining.seed import SeedBatcher, SeedConfig
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import Lanes, Position
from deepsiam.trainer.training.data.loader import Loader
from deepsiam.trainer.training.data.mixing import Mix
from deepsiam.trainer.training.data.order import Order
from deepsiam.trainer.training.data.shard_source import ShardSource

VOCABULARY = 30522
MAX_TOKENS, MICRO_BATCH = 512, 32
CHUNKS_PER_SHARD = 8


def write_shards(folder: Path, tokens: int, seed: int = 0) -> Manifest:
    """Write shards of documents with a median of 10 sentences, of 24 tokens on average."""
    special = list(tokenizer.SPECIAL_TOKENS.values())
    pieces = special + [f"piece{number}" for number in range(len(special), VOCABULARY)]
    model = tokenizers.models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(folder / "vocabulary.json"))
    vocabulary = tokenizer.load(folder / "vocabulary.json")
    rng = np.random.default_rng(seed)
    written = document = 0
    with ShardWriter(folder / "shards", vocabulary, chunks_per_shard=CHUNKS_PER_SHARD) as writer:
        while written < tokens:
            lengths = 1 + rng.gamma(4, 6, 1 + int(rng.lognormal(2.3, 1))).astype(int)
            ids = rng.integers(len(special), VOCABULARY, lengths.sum())
            writer.add(str(document), np.split(ids, np.cumsum(lengths)[:-1]))
            written, document = written + len(ids), document + 1
    return Manifest.load(folder / "shards")


def lengthen(manifest: Manifest, folder: Path, times: int) -> Manifest:
    """Make a folder that lists every shard several times: several names for the same file."""
    folder.mkdir()
    entries = []
    for number, entry in enumerate(manifest.shards * times):
        entries.append(replace(entry, name=f"shard-{number:06d}.tar"))
        os.link(manifest.directory / entry.name, folder / entries[-1].name)
    os.link(manifest.directory / "tokenizer.json", folder / "tokenizer.json")
    write_manifest(folder, tokenizer.load(folder / "tokenizer.json"), manifest.source, entries)
    return Manifest.load(folder)


@dataclass(frozen=True)
class Reading:
    """How a run reads one folder of shards."""

    manifest: Manifest
    lanes: int
    window: int  # chunks

    @property
    def batcher(self) -> SeedBatcher:
        """The batcher of SEED, by the shards' vocabulary."""
        vocabulary = {name: value for name, value in self.manifest.tokenizer.items() if name != "fingerprint"}
        return SeedBatcher(SeedConfig(name="seed", max_tokens=MAX_TOKENS), Vocabulary(**vocabulary))

    def order(self) -> Order:
        """Return the order of the micro-batches."""
        source = ShardSource(self.manifest)
        lanes = Lanes(source, self.batcher, seed=1, lanes=self.lanes, window=self.window, micro_batch=MICRO_BATCH)
        return Order({"": lanes}, Mix([1], 1))

    def micro_batches(self, workers: int) -> Iterator[MicroBatch]:
        """Yield micro-batches, made by a number of worker processes or in this one."""
        order = self.order()
        batches = Loader(order, 0, 1, workers).micro_batches(Cursor(order.start()))
        return (batch.micro_batch for batch in batches)


def resume(reading: Reading, micro_batches: int) -> float:
    """Measure seconds to the first `micro_batches` micro-batches in the middle of an epoch, verifying every shard."""
    start = time.perf_counter()
    middle = Position(0, reading.manifest.total("chunks") // reading.lanes // reading.window // 2, 0)
    for _ in islice(reading.order().stream([[middle] * reading.lanes], 0, 1), micro_batches):
        pass
    return time.perf_counter() - start
