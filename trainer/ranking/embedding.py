"""Write a teacher's vectors of texts in blocks; every rank encodes its own. `training.data.teacher` reads the folder.

The texts of a collection are its documents and queries; those of shards are a first sentence and what follows it, of
each passage, as the method `distil` cuts them. A block has the vectors of a range of texts or of a shard, so that it
does not depend on the number of ranks. Existing blocks are not made again: a stopped command resumes.

keys/NNNNNN.npy     int64 [n]: the keys of a block's texts, until the folder is complete
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from deepsiam.data_prep.collections.collection import Collection, is_collection
from deepsiam.data_prep.collections.texts import Texts
from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.data_prep.common.files import make_directory, save_array, sha256_of, whole_file
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.shards.manifest import Manifest, shards_folder
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from deepsiam.models.batching.candidates import text_key
from deepsiam.models.pretraining.distil import taught_pairs
from deepsiam.trainer.ranking.ranker import PROMPTS
from deepsiam.trainer.ranking.rankers.dense import DenseRanker, open_dense
from deepsiam.trainer.ranking.retrieval.resumable import open_work_folder
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, wait_for
from deepsiam.trainer.training.data.teacher import (
    BLOCKS,
    FORMAT,
    KEYS,
    MANIFEST,
    ROWS,
    Complete,
    MadeOf,
    TeacherVectors,
    side_keys,
)
from deepsiam.trainer.training.engine.world import failed_rank_exits_first, joined, rank_0_speaks, say

BLOCK = 16_384  # texts of a collection in a block
INPUTS = "model, texts, --passage-tokens, --dimensions, prompt or --precision"
Text = tuple[str, np.ndarray, str]  # its side, its tokens, itself


@dataclass(frozen=True)
class Source:
    """A collection or a folder of shards: its texts in parts, a block each."""

    directory: Path
    sha256: str
    tokenizer: Tokenizer
    parts: Sequence[Callable[[], Iterator[Text]]]

    @classmethod
    def open(cls, directory: Path, passage_tokens: int) -> Source:
        """Open a folder; raise InputError if it is neither, or damaged."""
        if is_collection(directory):
            collection = Collection.open(directory)
            sides = (("document", collection.corpus), ("query", collection.queries))
            parts = [
                partial(_of_texts, side, texts, start) for side, texts in sides for start in range(0, len(texts), BLOCK)
            ]
            return cls(directory, collection.sha256, collection.tokenizer, parts)
        manifest = Manifest.load(shards_folder(directory))
        tokenizer = tokenizers.load(manifest.directory / "tokenizer.json")
        parts = [partial(_of_shard, manifest, i, tokenizer, passage_tokens) for i in range(len(manifest.shards))]
        return cls(directory, manifest.sha256, tokenizer, parts)


def _of_texts(side: str, texts: Texts, start: int) -> Iterator[Text]:
    for i in range(start, min(start + BLOCK, len(texts))):
        yield side, texts.tokens(i), texts.text(i)


def _of_shard(manifest: Manifest, number: int, tokenizer: Tokenizer, passage_tokens: int) -> Iterator[Text]:
    for document in Shard.open(manifest, number).documents():
        for pair in taught_pairs(document, passage_tokens):
            for side, tokens in zip(("query", "document"), pair, strict=True):
                yield side, tokens, tokenizer.text_of(tokens)


def embed(arguments: argparse.Namespace) -> None:
    """Write the vectors that the arguments of `trainer.embed` describe, or go on with it; print what they are."""
    with failed_rank_exits_first():
        world = joined()
        with rank_0_first(world.rank, world.size):
            sources = [Source.open(path, arguments.passage_tokens) for path in arguments.texts]
            for source in sources[1:]:
                if source.tokenizer.fingerprint != sources[0].tokenizer.fingerprint:
                    raise InputError(f"{source.directory}: has another tokenizer than {sources[0].directory}")
            ranker = _teacher(arguments)
            made_of = MadeOf(
                format=FORMAT,
                teacher=ranker.name,
                fingerprint=ranker.identity["fingerprint"],
                precision=ranker.precision,
                dimensions=ranker.dimensions,
                texts={str(source.directory): source.sha256 for source in sources},
                tokenizer=sources[0].tokenizer.fingerprint,
                passage_tokens=arguments.passage_tokens,
            )
            if world.rank == 0:
                open_work_folder(arguments.out, made_of.model_dump(), INPUTS)
        with rank_0_speaks(world.rank):
            is_complete = (arguments.out / MANIFEST).is_file()
            if not is_complete:
                writer = Writer(ranker, [part for source in sources for part in source.parts], arguments.out)
                writer.write_blocks(world.rank, world.size)
                wait_for(world.size)
                if world.rank == 0:
                    writer.finish(made_of)
                wait_for(world.size)
            vectors = TeacherVectors.open(arguments.out)
            say(
                f"{arguments.out}: {'complete already: ' if is_complete else ''}{len(vectors.keys):,} texts, "
                f"{vectors.manifest.width} x float16 each, by {ranker.name}"
            )


def _teacher(arguments: argparse.Namespace) -> DenseRanker:
    """Open the model with its prompts; raise InputError if it has not one vector for a text."""
    ranker = open_dense(Path(arguments.teacher), arguments.precision, "which a student learns")
    with as_input_error(arguments.teacher):
        ranker = ranker.with_prompts({name: text for name in PROMPTS if (text := getattr(arguments, name)) is not None})
    return ranker.cut(arguments.dimensions) if arguments.dimensions else ranker


@dataclass(frozen=True)
class Writer:
    """Writes a folder of a teacher's vectors: on every rank some blocks, then on one what makes it complete."""

    ranker: DenseRanker
    parts: Sequence[Callable[[], Iterator[Text]]]
    folder: Path

    @property
    def names(self) -> list[str]:
        """The file name of each block."""
        return [f"{i:06d}.npy" for i in range(len(self.parts))]

    def write_blocks(self, rank: int, ranks: int) -> None:
        """Write a rank's missing blocks; raise InputError where a vector is zero or not finite."""
        for folder in ("keys", BLOCKS):
            make_directory(self.folder / folder)
        with meter("embed", "blocks", len(self.parts)) as report:
            for i, name in enumerate(self.names):
                if i % ranks == rank and not (self.folder / BLOCKS / name).is_file():
                    keys, vectors = self._encoded(self.parts[i]())
                    save_array(self.folder / "keys" / name, keys)
                    save_array(self.folder / BLOCKS / name, vectors)
                    report(i + 1, "")

    def _encoded(self, texts: Iterator[Text]) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys int64 [n] and the vectors fp16 [n, W] of the distinct texts."""
        by_side: dict[str, dict[int, str]] = {"query": {}, "document": {}}
        for side, tokens, text in texts:
            by_side[side].setdefault(text_key(tokens), text)
        keys, vectors = [np.empty(0, np.int64)], [np.empty((0, self.ranker.width), np.float16)]
        for side, encoder in (("query", self.ranker.queries), ("document", self.ranker.documents)):
            if by_side[side]:
                keys.append(side_keys(side, np.array([*by_side[side]], np.int64)))
                words = [*by_side[side].values()]
                encoded = encoder.embeddings(self.ranker.loaded.tokenizer.encode(words), metered=False)
                vectors.append(_half(encoded, words))
        return np.concatenate(keys), np.concatenate(vectors)

    def finish(self, made_of: MadeOf) -> None:
        """Write the files that make the blocks a complete folder, once all are written."""
        keys = np.concatenate([np.load(self.folder / "keys" / name, allow_pickle=False) for name in self.names])
        distinct, rows = np.unique(keys, return_index=True)
        save_array(self.folder / KEYS, distinct)
        save_array(self.folder / ROWS, rows.astype(np.int64))
        files = chain((KEYS, ROWS), (f"{BLOCKS}/{name}" for name in self.names))
        sha256 = {file: sha256_of(self.folder / file) for file in files}
        complete = Complete(**made_of.model_dump(), width=self.ranker.width, sha256=sha256)
        with whole_file(self.folder / MANIFEST) as file:
            file.write((json.dumps(complete.model_dump(), indent=1) + "\n").encode())
        shutil.rmtree(self.folder / "keys", ignore_errors=True)


def _half(vectors: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Return vectors as fp16; raise InputError, naming a text, where one is zero or not finite then."""
    with np.errstate(over="ignore"):
        half = vectors.astype(np.float16)
    lengths = np.linalg.norm(half.astype(np.float32), axis=1)
    if len(bad := np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))):
        problem = "zero" if lengths[bad[0]] == 0 else "not finite as float16"
        raise InputError(
            f"{len(bad):,} of {len(half):,} vectors are zero or not finite, such as that of {texts[bad[0]][:50]!r}, "
            f"which is {problem}: leave these texts out, or take another teacher"
        )
    return half
