"""The consistency filter of E5 (Wang et al., 2022, section 3): keep a pair if a model finds its document for its query.

A pair is kept if its document is among the first k of a pool: fewer than k texts of the pool, other than its own, score
higher. The pool is all documents of the pairs, or some drawn by a seed. A stopped command resumes:

OUT.kept/made_of.json    the pairs, the model, k and the pool
OUT.kept/pool.npy        fp32 [N, H], the vectors of the pool's distinct texts
OUT.kept/NNNNNN.npy      bool [documents of the shard], which pairs are kept
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import save_array, whole_folder
from deepsiam.data_prep.common.progress import meter
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.shards.document import TokenDocument
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.shards.packing import encode_chunk, write_shard
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.models.batching.candidates import text_key
from deepsiam.trainer.ranking.rankers.dense import DenseRanker, open_dense
from deepsiam.trainer.ranking.retrieval.resumable import open_work_folder
from deepsiam.trainer.ranking.retrieval.shared import rank_0_first, shared_by, wait_for
from deepsiam.trainer.ranking.retrieval.system import Embedded

POOL, POOL_KEYS = "pool.npy", "pool_keys.npy"


@dataclass(frozen=True)
class Filter:
    """A model, and the pool that it searches for the queries of pairs."""

    pairs: Manifest
    ranker: DenseRanker
    k: int
    size: int | None  # documents drawn for the pool; None: all
    seed: int

    @classmethod
    def open(cls, shards: Path, model: Path, k: int, size: int | None, seed: int, precision: str | None) -> Filter:
        """Open a folder of pairs, and a run or a sentence-transformers folder.

        Raises:
            InputError: the shards are not pairs, or the model has several vectors for a text, or another tokenizer.
        """
        pairs = Manifest.load(shards)
        if pairs.source.get("pairs") is not True:
            raise InputError(f"{shards}: its documents are not pairs: name shards of `data_prep pairs`")
        ranker = open_dense(model, precision, "by which pairs are filtered")
        trained = ranker.loaded
        remedy = f"prepare the pairs again with --tokenizer {trained.tokenizer.path}"
        require_same_tokenizer(trained.tokenizer, trained.checkpoint, pairs.tokenizer["fingerprint"], shards, remedy)
        return cls(pairs, ranker, k, size, seed)

    @property
    def made_of(self) -> dict[str, Any]:
        """What decides which pairs are kept."""
        model = self.ranker.identity["fingerprint"]
        by = {"model": model, "precision": self.ranker.precision}
        return {"pairs": self.pairs.sha256, **by, "k": self.k, "pool": self.size, "seed": self.seed}

    def write(self, out: Path, rank: int = 0, ranks: int = 1) -> Iterator[str]:
        """Write the pairs that are kept, in their order, and yield a line for each shard and one for all.

        All ranks encode the pool, then filter a shard each at a time; rank 0 writes the result, which does not depend
        on their number.

        Raises:
            InputError: what was kept of a stopped command is of other inputs, or no pair is kept.
        """
        folder = out.with_name(f"{out.name}.kept")
        with rank_0_first(rank, ranks):
            if rank == 0:
                open_work_folder(folder, self.made_of, "pairs, model, --precision, --consistent, --pool or --seed")
        keys, vectors = self._pool(folder, rank, ranks)
        masks, files = list[np.ndarray](), [folder / f"{number:06d}.npy" for number in range(len(self.pairs.shards))]
        for start in range(0, len(files), ranks):
            number = start + rank
            if number < len(files) and not files[number].is_file():
                save_array(files[number], self._kept(list(Shard.open(self.pairs, number).documents()), keys, vectors))
            wait_for(ranks)
            for file, entry in zip(files[start : start + ranks], self.pairs.shards[start:], strict=False):
                masks.append(np.load(file, allow_pickle=False))
                yield f"{entry.name}: {masks[-1].sum():,} of {entry.documents:,} pairs kept"
        wait_for(ranks)  # all have read the last masks, which the caller removes
        number, total = sum(int(mask.sum()) for mask in masks), self.pairs.total("documents")
        if not number:
            raise InputError(f"{self.pairs.directory}: no pair is kept: raise --consistent, or name another model")
        if rank == 0:
            self._write(out, masks, {"kept": number, "of": total})
        yield f"all: {number:,} of {total:,} pairs kept ({number / total:.0%})"

    def _pool(self, folder: Path, rank: int, ranks: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys int64 [N] and the vectors fp32 [N, H] of the distinct texts of the pool."""
        files = folder / POOL_KEYS, folder / POOL
        is_made = all(file.is_file() for file in files)
        wait_for(ranks)  # all have looked
        if not is_made:
            texts = {text_key(text): text for text in self._pool_texts()}
            with shared_by(rank, ranks):
                vectors = self.ranker.documents.embeddings(texts.values())
            if rank == 0:
                for file, array in zip(files, (np.array(list(texts), np.int64), vectors), strict=True):
                    save_array(file, array)
            wait_for(ranks)
        keys, vectors = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
        return keys, vectors

    def _pool_texts(self) -> Iterator[np.ndarray]:
        """Yield the documents of the pool; only the shards that have some are read."""
        total = self.pairs.total("documents")
        numbers = np.arange(total)
        if self.size is not None and self.size < total:
            numbers = np.sort(keyed_rng("consistency pool", self.seed).choice(total, self.size, replace=False))
        start = 0
        with meter("read the pool", "documents", len(numbers)) as report:
            for number, entry in enumerate(self.pairs.shards):
                a, b = np.searchsorted(numbers, [start, start + entry.documents])
                if a < b:
                    documents = list(Shard.open(self.pairs, number).documents())
                    yield from (_sides(documents[i])[1] for i in (numbers[a:b] - start).tolist())
                start += entry.documents
                report(int(b), "")

    def _kept(self, pairs: list[TokenDocument], keys: np.ndarray, pool: np.ndarray) -> np.ndarray:
        """Return which pairs have fewer than k other texts of the pool that score higher than their own: bool [n]."""
        queries, documents = zip(*map(_sides, pairs), strict=True)
        query_vectors, vectors = self.ranker.queries.embeddings(queries), self.ranker.documents.embeddings(documents)
        ranked = Embedded(query_vectors, pool, self.ranker.accelerator).rank(self.k)
        by_pairs = Embedded(query_vectors, vectors)
        is_kept = np.zeros(len(pairs), bool)
        for i, (places, scores) in enumerate(ranked):
            score = by_pairs.of(i, np.array([i]))
            is_kept[i] = ((scores > score) & (keys[places] != text_key(documents[i]))).sum() < self.k
        return is_kept

    def _write(self, out: Path, masks: list[np.ndarray], counts: dict[str, int]) -> None:
        """Write the shards of the pairs that are kept; a chunk or a shard without any is left out."""
        entries: list[manifest.ShardEntry] = []
        with whole_folder(out) as folder:
            for number, mask in enumerate(masks):
                shard, chunks, start = Shard.open(self.pairs, number), [], 0
                for documents in shard.chunks():
                    selected = list(compress(documents, mask[start : start + len(documents)]))
                    start += len(documents)
                    if selected:
                        chunks.append(encode_chunk(selected, self.pairs.id_type, out))
                if chunks:
                    path = folder / manifest.shard_name(len(entries))
                    entries.append(write_shard(path, len(entries), chunks))
            tokenizer = tokenizers.load(self.pairs.directory / "tokenizer.json")
            (folder / "tokenizer.json").write_bytes(tokenizer.path.read_bytes())
            about = {**self.made_of, "checkpoint": self.ranker.name, **counts}
            manifest.write(folder, tokenizer, {**self.pairs.source, "consistent": about}, entries)


def _sides(pair: TokenDocument) -> tuple[np.ndarray, np.ndarray]:
    if len(pair.segments) != 2:
        raise InputError(f"document {pair.id:.80}: has {len(pair.segments)} segments, not a query and a document")
    query, document = pair.segments
    return query, document
