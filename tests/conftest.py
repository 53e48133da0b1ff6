"""Fixtures shared by the tests of every room."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from deepsiam.data_prep.common import progress
from tests import toy
from tests.hub import Hub
from tests.hub import serving as hub_serving

# hypothesis's deadlines would fail on a busy machine; fixed examples, so that every push is judged by the same ones
anywhere = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("push", anywhere, max_examples=10, derandomize=True)
settings.register_profile("full", anywhere, max_examples=100)
settings.load_profile("full" if toy.FULL_TESTS else "push")

# tiny models are slower on many threads: here, and in every process that a test starts
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# files and folders that take longest, started first, so that no worker is left alone with one at the end
LONGEST = [
    toy.ROOT / "tests" / name for name in ("test_readme.py", "trainer/launches/test_hosts.py", "trainer/launches")
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that take longest to the front; all others keep their order."""
    items.sort(
        key=lambda item: next((i for i, path in enumerate(LONGEST) if item.path.is_relative_to(path)), len(LONGEST))
    )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Call a case of bytes by its argument: compressed, they may have the second in them, and workers must agree."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Start one worker more than there are cores: tests of hosts, hangs and restarts wait much of their time."""
    return (yield) + 1


@pytest.fixture(autouse=True)
def no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no line of progress in a test's own process: whether one is due depends on how busy the machine is."""
    monkeypatch.setattr(progress, "PERIOD", float("inf"))


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of made-up text; read only."""
    return toy.write_shards(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def taught_shards(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shards, and beside them the vectors of an untrained teacher, of width 32, in passages of 32 tokens."""
    return write_vectors(shards, tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="session")
def taught_collection(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection, and the same beside it."""
    return write_vectors(toy_collection, tmp_path_factory.mktemp("teacher"))


def write_vectors(texts: Path, folder: Path) -> Path:
    """Write a teacher's vectors of texts beside them; return the texts."""
    from deepsiam.trainer import embed
    from tests.trainer.runs import write_run

    keys = {"name": "siamese", "pooling": "mean", "similarity": "cosine", "max_document_tokens": 64}
    run = write_run(folder / "run", texts / "tokenizer.json", **keys)
    embed.main([str(run), str(texts), "--passage-tokens=32", f"--out={toy.vectors_beside(texts)}"])
    return texts


@pytest.fixture(scope="session")
def launcher() -> Path:
    """DeepSpeed's launcher; it is forked, and so are its ranks: `tests.warm_python`."""
    return toy.forked_python().with_name("deepspeed")


@pytest.fixture(scope="session")
def pair_shards(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of made-up pairs, with the shards' tokenizer; read only."""
    return toy.write_pairs(tmp_path_factory.mktemp("pairs") / "shards", shards)


@pytest.fixture(scope="session")
def toy_collection(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenised collection of made-up text, with the shards' tokenizer; read only."""
    return toy.write_collection(tmp_path_factory.mktemp("collection") / "toy", shards / "tokenizer.json")


@pytest.fixture(scope="session")
def toy_scored(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with five candidates of each train query and a teacher's scores; read only."""
    return toy.write_scored(tmp_path_factory.mktemp("scored") / "toy", toy_collection)


@pytest.fixture(scope="session")
def toy_classes(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenised collection of made-up pairs of three classes, with the shards' tokenizer; read only."""
    return toy.write_classes(tmp_path_factory.mktemp("classes") / "toy", shards / "tokenizer.json")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A stand-in of the Hugging Face Hub, with an empty cache."""
    with hub_serving(tmp_path / "hub", monkeypatch) as running:
        yield running
