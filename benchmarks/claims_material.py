"""Material of the benchmarks on real text: shards, and two labelled collections in two folds."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.training import run_or_exit
from data_prep.common.errors import InputError
from data_prep.common.files import make_directory, read_bytes, whole_file

DOCSTRINGS = Path("data/demo")  # made by `make demo`: shards, a collection, and the tokenizer of everything here
TOKENIZER = DOCSTRINGS / "shards" / "tokenizer.json"
SOURCES = {"wikipedia": ("wiki/AA", "wiki/AB"), "bookcorpus": ("books",), "reddit": ("reddit",)}  # inputs, by source
SHARDS = 64  # one for every lane
CLASSIC = ("cranfield", "vaswani")
FOLDS = ("first", "second")
TOGETHER = 10  # neighbouring queries kept in one fold: several may come from one paper


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add --data, the folder of real text: $DEEPSIAM_DATA, or ../shared/data."""
    default = Path(os.environ.get("DEEPSIAM_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, metavar="FOLDER", help="real text (%(default)s)")


def text(data: Path, out: Path) -> dict[str, Path]:
    """Prepare every source under `out`, where that is not done yet; return the folders of shards."""
    if not TOKENIZER.is_file():
        raise InputError(f"{DOCSTRINGS}: no such data set; run: make demo")
    shards = {"docstrings": DOCSTRINGS / "shards"}
    for source in SOURCES:
        prepare(source, data, out / source)
        shards[source] = out / source / "shards"
    return shards


def prepare(source: str, data: Path, out: Path, *options: str) -> None:
    """Prepare shards of one of SOURCES in `out`, with the demo's tokenizer, where that is not done yet."""
    inputs = [str(data / name) for name in SOURCES[source]]
    _data_prep(source, *inputs, "--out", str(out), "--tokenizer", str(TOKENIZER), "--shards", str(SHARDS), *options)


def classic(data: Path, out: Path) -> Path:
    """Join the collections of CLASSIC into one, each with its own pool of documents; return its folder.

    Split FOLD has the labelled queries of a fold of both, to train on, and NAME-FOLD those of one, to rank.
    """
    folder = out / "classic"
    texts: dict[str, list[dict[str, Any]]] = {"corpus": [], "queries": []}
    qrels: dict[str, list[str]] = {fold: [] for fold in FOLDS}
    pools: dict[str, list[str]] = {}
    for name in CLASSIC:
        for part, lines in texts.items():
            lines += ({**line, "_id": f"{name}/{line['_id']}"} for line in _json_lines(data / name / f"{part}.jsonl"))
        for fold, judged in _folds(data / name / "qrels" / "train.tsv").items():
            rows = [f"{name}/{query}\t{name}/{document}\t{score}" for query, document, score in judged]
            qrels[f"{name}-{fold}"] = rows
            qrels[fold] += rows
            pools[f"{name}-{fold}"] = [line["_id"] for line in texts["corpus"] if line["_id"].startswith(f"{name}/")]
    for part, lines in texts.items():
        _write(folder / f"{part}.jsonl", map(json.dumps, lines))
    for split, rows in qrels.items():
        _write(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", *rows])
    for split, ids in pools.items():
        _write(folder / "pools" / f"{split}.txt", ids)
    _data_prep("collection", str(folder), "--tokenizer", str(TOKENIZER))
    return folder


def _folds(path: Path) -> Mapping[str, list[list[str]]]:
    """The judgements of each fold, which take turns: TOGETHER queries each time, in the order of the file."""
    rows = [line.split("\t") for line in read_bytes(path).decode().splitlines()[1:]]
    number = {query: i for i, query in enumerate(dict.fromkeys(row[0] for row in rows))}
    folds: dict[str, list[list[str]]] = {fold: [] for fold in FOLDS}
    for row in rows:
        folds[FOLDS[number[row[0]] // TOGETHER % len(FOLDS)]].append(row)
    return folds


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in read_bytes(path).splitlines() if line.strip())


def _write(path: Path, lines: Iterator[str] | list[str]) -> None:
    make_directory(path.parent)
    with whole_file(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def _data_prep(*arguments: str) -> None:
    run_or_exit([sys.executable, "-m", "data_prep", *arguments])
