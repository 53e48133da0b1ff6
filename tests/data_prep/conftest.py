"""Small tokenizers for the tests of data_prep."""

import json
from pathlib import Path

import pytest

from data_prep import tokenizer
from data_prep.tokenizer import Tokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A dog sleeps while the fox jumps; the dog does not see it.",
    "Returns the number of foxes that jumped over dogs, or 0 where there are none.",
]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Its ids fit uint16."""
    return tokenizer.train(TEXTS * 2, 120, tmp_path_factory.mktemp("small") / "tokenizer.json")


@pytest.fixture(scope="session")
def large(small: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Its ids need uint32."""
    record = json.loads(small.path.read_text())
    vocabulary = record["model"]["vocab"]
    for number in range(len(vocabulary), 70_000):
        vocabulary[f"word{number}"] = number
    path: Path = tmp_path_factory.mktemp("large") / "tokenizer.json"
    path.write_text(json.dumps(record))
    return tokenizer.load(path)
