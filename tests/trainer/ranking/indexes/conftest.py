"""A collection with duplicate documents and an index of each kind of it, of five blocks, which all tests here share."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from tests.trainer.ranking.indexes.five_blocks import NAMES, build_named, small_blocks
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 24}
METHODS = {
    "dense": {"name": "siamese", "pooling": "mean", "similarity": "cosine", **LENGTHS},
    "multi_vector": {"name": "colbert", "dimension": 18, **LENGTHS},
    "sparse": {"name": "sparse", **LENGTHS},
}


class Kinds(NamedTuple):
    runs: dict[str, list[Path]]  # two for each kind of index that has a model
    rankers: dict[str, Ranker]
    made: dict[str, Index]  # one of each kind and coded dtype; read only


@pytest.fixture(autouse=True)
def _small_blocks() -> Iterator[None]:
    with small_blocks():
        yield


@pytest.fixture(scope="session")
def copies(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """The toy collection; the last 30 of its 120 documents are copies of the first 30."""
    folder = tmp_path_factory.mktemp("copies") / "c"
    shutil.copytree(toy_collection, folder)
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    texts = [lines[i].split('"text"')[1] for i in range(30)]
    lines[90:] = [f'{lines[90 + i].split(chr(34) + "text")[0]}"text"{text}' for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    return build_collection("beir", [folder], folder, tokenizers.load(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def kinds(copies: Collection, tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    folder, tokenizer = tmp_path_factory.mktemp("kinds"), copies.directory / "tokenizer.json"
    runs = {
        kind: [write_run(folder / f"{kind}{seed}", tokenizer, seed=seed, **method) for seed in (0, 1)]
        for kind, method in METHODS.items()
    }
    rankers = {"bm25": Bm25Ranker(copies)} | {kind: open_ranker(first, copies) for kind, (first, _) in runs.items()}
    with small_blocks():
        return Kinds(runs, rankers, {name: build_named(name, rankers, folder / name) for name in NAMES})
