"""A collection, its index and a search of it: the cost of each by the number of passages."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import machine
from benchmarks.common.calibration import cpu_seconds
from benchmarks.common.curve_fit import fit
from benchmarks.common.machine import use_one_thread
from benchmarks.common.made_up_pairs import PairSizes, word, write_encoder, write_tokenizer
from benchmarks.common.made_up_text import draw_words
from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.rng import keyed_rng
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.rankers.registry import open_ranker

WORDS = 8192  # distinct words
BEST = 100
STAGES = ("collection", "index", "search")


@dataclass(frozen=True)
class PathSizes:
    """The numbers of passages (three or more), the passages' length, and the width of their vectors."""

    passages: tuple[int, ...]
    words: int  # of a passage
    queries: int
    hidden: int


def measure(sizes: PathSizes, _: float) -> dict[str, Any]:
    """Take the whole path once with each number of passages, however long that takes."""
    costs: dict[str, list[float]] = {}
    for passages in sizes.passages:
        for name, value in _elsewhere(sizes, passages).items():
            costs.setdefault(name, []).append(value)
    growth = {
        name: {
            "values": values,
            "unit": "bytes" if "memory" in name else "CPU s",
            "exponent": fit(sizes.passages, values).exponent,
        }
        for name, values in costs.items()
    }
    return {"passages": list(sizes.passages), "growth": growth}


def _elsewhere(sizes: PathSizes, passages: int) -> dict[str, float]:
    """Measure the stages, each in a separate process, so that only its own memory counts."""
    costs: dict[str, float] = {}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with tempfile.TemporaryDirectory() as folder:
        prepare(sizes, passages, Path(folder))
        for stage in STAGES:
            with ProcessPoolExecutor(1, context) as process:
                spent, memory = process.submit(take, stage, sizes, Path(folder)).result()
            costs |= {stage: spent, f"{stage}, memory": memory}
    return costs


def prepare(sizes: PathSizes, passages: int, folder: Path) -> None:
    """Write the texts, their tokenizer and the encoder."""
    vocabulary = write_tokenizer(WORDS, folder / "tokenizer.json")
    encoder = PairSizes(
        layers=1, hidden=sizes.hidden, words=WORDS, batch=2, micro=2, median=0, longest=sizes.words + 2, steps=1
    )
    write_encoder(encoder, vocabulary, folder)
    for part, number in (("corpus", passages), ("queries", sizes.queries)):
        with open(folder / f"{part}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(_lines(part, number, sizes.words))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n0\t0\t1\n")


def _lines(part: str, number: int, words: int) -> Iterator[str]:
    rng, different = keyed_rng(f"benchmark {part}"), WORDS - len(tokenizers.SPECIAL_TOKENS)
    numbered = enumerate(iter(lambda: " ".join(map(word, draw_words(rng, words, different))), None))
    return (json.dumps({"_id": str(i), "text": text}) + "\n" for i, text in islice(numbered, number))


def take(stage: str, sizes: PathSizes, folder: Path) -> tuple[float, int]:
    """Take a stage of the path; return its CPU seconds, and the peak memory of the process, imports included."""
    use_one_thread()
    stages: dict[str, Callable[[], object]] = {
        "collection": partial(_make_collection, folder),
        "index": partial(_make_index, folder),
        "search": partial(_search, folder, sizes.queries),
    }
    return cpu_seconds(stages[stage]), machine.highest_resident()


def _make_collection(folder: Path) -> None:
    build_collection("beir", [folder], folder / "collection", tokenizers.load(folder / "encoder"))


def _make_index(folder: Path) -> None:
    DenseIndex.build(open_ranker(folder / "encoder", Collection.open(folder / "collection")), folder / "index")


def _search(folder: Path, queries: int) -> None:
    index = open_index(folder / "index")
    found = index.search_share([index.collection.queries.text(i) for i in range(queries)], BEST)
    assert np.all([len(of_query.documents) == min(BEST, len(index.collection.corpus)) for of_query in found])
