"""Material of the claims benchmark: shards of real text, two collections, and one tokenizer trained on all the text."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.training import run_or_exit
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, read_bytes, whole_file
from deepsiam.data_prep.demo.pairs import in_hash_order
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.tokenizers import tokenizer

DOCSTRINGS = Path("data/demo")  # made by `make demo`
TOKENIZER = DOCSTRINGS / "shards" / "tokenizer.json"
INPUTS = {"wikipedia": ("wiki/AA", "wiki/AB"), "bookcorpus": ("books",), "reddit": ("reddit",)}  # by source
MIXED = ("docstrings", "wikipedia", "bookcorpus")  # what methods read, in equal shares
VOCABULARY = 8192  # the demo's
SAMPLE = 10_000_000  # characters from each of MIXED to train the tokenizer on
SHARDS = 64  # one for every lane
CLASSIC = ("cranfield", "vaswani")
FOLDS = ("first", "second")
TOGETHER = 10  # neighbouring queries kept in one fold, and in one part of it: several may come from one paper
DEV_EVERY = 3  # one in three such tens of a fold is for choosing settings
DEV_POOL = 2000  # about how many documents these queries are ranked over


@dataclass(frozen=True)
class Material:
    """Shards by source, and the collections, all with the same tokenizer."""

    shards: Mapping[str, Path]
    docstrings: Collection
    classic: Collection


def show(tables: str, path: Path) -> None:
    """Print tables and write them to a file."""
    with whole_file(path) as file:
        file.write(f"{tables}\n".encode())
    print(tables, flush=True)


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add --data, the folder of real text: $DEEPSIAM_DATA, or ../shared/data."""
    default = Path(os.environ.get("DEEPSIAM_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, metavar="FOLDER", help="real text (%(default)s)")


def make(data: Path, out: Path) -> Material:
    """Prepare everything that is not there yet under `out`; return it.

    The docstrings are prepared again, because the tokenizer of `make demo` was trained only on docstrings.
    """
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; name one with wiki, books, reddit and {', '.join(CLASSIC)}")
    if not TOKENIZER.is_file():
        raise InputError(f"{DOCSTRINGS}: no such data set; run: make demo")
    make_directory(out)
    vocabulary = out / "tokenizer.json"
    if not vocabulary.is_file():
        tokenizer.train(mixed(texts(data)), VOCABULARY, vocabulary)
    data_prep("docstrings", "--out", str(out / "docstrings"), "--tokenizer", str(vocabulary))
    shards = {"docstrings": out / "docstrings" / "shards"}
    for source in INPUTS:
        prepare(source, data, out / source, vocabulary)
        shards[source] = out / source / "shards"
    docstrings = Collection.open(out / "docstrings" / "collection")
    return Material(shards, docstrings, Collection.open(classic(data, out, vocabulary)))


def texts(data: Path) -> dict[str, list[str]]:
    """Return the paragraphs of each of MIXED; for the docstrings, only those of the training split's pairs."""
    collection = Collection.open(DOCSTRINGS / "collection")
    pairs = collection.groups("train")
    queries, documents = np.unique(pairs.queries), np.unique(pairs.candidates.flat)
    found = {"docstrings": [*map(collection.queries.text, queries), *map(collection.corpus.text, documents)]}
    for source in MIXED[1:]:
        read = SOURCES[source].documents([data / name for name in INPUTS[source]])
        found[source] = [paragraph for item in read if isinstance(item, Document) for paragraph in item.segments]
    return found


def mixed(sources: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield equally many characters of each source, SAMPLE or what the smallest has, from all parts of the source."""
    share = min(SAMPLE, *(sum(map(len, paragraphs)) for paragraphs in sources.values()))
    for paragraphs in sources.values():
        left = share
        for paragraph in in_hash_order(paragraphs):
            yield paragraph[:left]
            left -= len(paragraph[:left])
            if not left:
                break


def prepare(source: str, data: Path, out: Path, vocabulary: Path, *options: str) -> None:
    """Prepare shards of one of INPUTS in `out`, unless that is done already."""
    inputs = [str(data / name) for name in INPUTS[source]]
    data_prep(source, *inputs, "--out", str(out), "--tokenizer", str(vocabulary), "--shards", str(SHARDS), *options)


def classic(data: Path, out: Path, vocabulary: Path, names: Sequence[str] = CLASSIC) -> Path:
    """Join collections in BEIR's layout into one, each with its own pool of documents; return its folder.

    A fold's labelled queries are in these splits: FOLD, queries of both collections to train on; NAME-FOLD-dev, other
    queries of one collection to choose settings on; NAME-FOLD, all queries of one collection, to rank after training on
    the other fold.
    """
    folder = out / "classic"
    lines: dict[str, list[dict[str, Any]]] = {"corpus": [], "queries": []}
    qrels: dict[str, list[str]] = {fold: [] for fold in FOLDS}
    pools: dict[str, list[str]] = {}
    for name in names:
        for part, own in lines.items():
            own += ({**line, "_id": f"{name}/{line['_id']}"} for line in json_lines(data / name / f"{part}.jsonl"))
        ids = [line["_id"] for line in lines["corpus"] if line["_id"].startswith(f"{name}/")]
        for (fold, dev), judged in _parts(data / name / "qrels" / "train.tsv").items():
            rows = [f"{name}/{query}\t{name}/{document}\t{score}" for query, document, score in judged]
            qrels.setdefault(f"{name}-{fold}", []).extend(rows)
            pools[f"{name}-{fold}"] = ids
            if dev:
                qrels[f"{name}-{fold}-dev"] = rows
                others = ids[:: max(1, len(ids) // DEV_POOL)]
                pools[f"{name}-{fold}-dev"] = list(dict.fromkeys([*(row.split("\t")[1] for row in rows), *others]))
            else:
                qrels[fold] += rows
    for part, own in lines.items():
        write(folder / f"{part}.jsonl", map(json.dumps, own))
    for split, rows in qrels.items():
        write(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", *rows])
    for split, pool in pools.items():
        write(folder / "pools" / f"{split}.txt", pool)
    data_prep("collection", str(folder), "--tokenizer", str(vocabulary))
    return folder


def _parts(path: Path) -> dict[tuple[str, bool], list[list[str]]]:
    """Return the judgements of each part of a file; a part is (fold, whether it is for choosing settings).

    The folds take turns in the order of the file, TOGETHER queries each time; every DEV_EVERY-th turn of a fold is for
    choosing settings.
    """
    rows = [line.split("\t") for line in read_bytes(path).decode().splitlines()[1:]]
    number = {query: i // TOGETHER for i, query in enumerate(dict.fromkeys(row[0] for row in rows))}
    parts: dict[tuple[str, bool], list[list[str]]] = {}
    for row in rows:
        turn, fold = divmod(number[row[0]], len(FOLDS))
        parts.setdefault((FOLDS[fold], turn % DEV_EVERY == DEV_EVERY - 1), []).append(row)
    return parts


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines."""
    yield from (json.loads(line) for line in read_bytes(path).splitlines() if line.strip())


def write(path: Path, lines: Iterable[str]) -> None:
    """Write a text file completely, or not at all; make its folder where it is missing."""
    make_directory(path.parent)
    with whole_file(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def data_prep(*arguments: str) -> None:
    """Run a command of data_prep to its end, or exit with its code."""
    run_or_exit([sys.executable, "-m", "data_prep", *arguments])
