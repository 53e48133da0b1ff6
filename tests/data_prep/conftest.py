"""Fixtures of all tests of data_prep: no write waits for the disk; small tokenizers; generated packages."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep import __main__
from deepsiam.data_prep.common import workers
from deepsiam.data_prep.sources.docstrings.modules import SourceFile, find
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A dog sleeps while the fox jumps; the dog does not see it.",
    "Returns the number of foxes that jumped over dogs, or 0 where there are none.",
]
WORDS = "the of fox dog is that it jumps lazy quick brown over sees and counts river stone tree"


@pytest.fixture(scope="session", autouse=True)
def one_parser() -> Iterator[None]:
    """Make the commands' parser once for the names that are registered: that takes as long as a small command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(__main__, "parser", cache(__main__.parser))
        yield


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no write wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ProcessPoolExecutor", raw.forked_pool)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer whose ids fit uint16."""
    return tokenizer.train(TEXTS * 2, 120, tmp_path_factory.mktemp("small") / "tokenizer.json")


@pytest.fixture(scope="session")
def large(small: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer whose ids need uint32."""
    record = json.loads(small.path.read_text())
    vocabulary = record["model"]["vocab"]
    for number in range(len(vocabulary), 70_000):
        vocabulary[f"word{number}"] = number
    path: Path = tmp_path_factory.mktemp("large") / "tokenizer.json"
    path.write_text(json.dumps(record))
    return tokenizer.load(path)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[SourceFile]:
    """Thirty packages of generated docstrings; read only."""
    root = tmp_path_factory.mktemp("packages")
    rng = np.random.default_rng(0)
    for package in range(30):
        code = []
        for number in range(3 + package % 7):
            sentences = [" ".join(rng.choice(WORDS.split(), 9)).capitalize() + "." for _ in range(4)]
            docstring = f'    """{sentences[0]}\n\n    {" ".join(sentences[1:])}\n    """'
            code.append(f"def f{number}():\n{docstring}\n")
        (root / f"package{package:02}.py").write_text("\n".join(code))
    return find(root)


@pytest.fixture
def disk_full_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function: called with n, it makes every fsync after n good ones report a full disk."""

    def arrange(good_syncs: int) -> None:
        done = 0

        def fsync(descriptor: int) -> None:
            nonlocal done
            done += 1
            if done > good_syncs:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)

    return arrange
