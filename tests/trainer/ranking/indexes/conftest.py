"""A collection with duplicate documents, for the index tests."""

import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers


@pytest.fixture(scope="module")
def copies(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """The toy collection; the last 30 of its 120 documents are copies of the first 30."""
    folder = tmp_path_factory.mktemp("copies") / "c"
    shutil.copytree(toy_collection, folder)
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    texts = [lines[i].split('"text"')[1] for i in range(30)]
    lines[90:] = [f'{lines[90 + i].split(chr(34) + "text")[0]}"text"{text}' for i, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    return build("beir", [folder], folder, tokenizers.load(folder / "tokenizer.json"))
