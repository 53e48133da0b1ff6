"""The package of examples, installed: trained on two ranks, killed, resumed, ranked, exported; or missing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.registry import VARIABLE
from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.killed import kill, read_to
from tests.own_code import EXAMPLES

pytestmark = pytest.mark.slow  # real processes

ON_PATH = "tests.examples.on_path"
SPOKEN = "1\n00:00:01,000 --> 00:00:02,500\nThe fox jumps\nover the dog.\n"


def printed_by(done: subprocess.CompletedProcess[str]) -> str:
    """What a command printed, which succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, installed from a copy: setuptools leaves files beside what it builds."""
    source, folder = tmp_path_factory.mktemp("source") / "examples", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLES, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return folder


@pytest.fixture(scope="module")
def pretrained(installed: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of a bag of words, trained by RAdam on two ranks; it was killed after step 5 and resumed from 4."""
    recipe = toy.seed_recipe(
        tmp_path_factory.mktemp("runs") / "bag.yaml",
        shards,
        checkpoint={"every": 2},
        method={"name": "bag_of_words", "max_tokens": 32},
        optimizer={"name": "radam", "lr": 1e-3},
    )
    printed = recipe.with_name("printed")
    printed.touch()
    process = toy.start(2, ON_PATH, installed, "trainer.pretrain", recipe, printed=printed)
    read_to(process, printed, "step 5/")
    kill(process)
    assert "resuming from" in printed_by(toy.launch(2, ON_PATH, installed, "trainer.pretrain", recipe, "--resume"))
    return recipe


@pytest.fixture(scope="module")
def finetuned(installed: Path, pretrained: Path, toy_collection: Path) -> Path:
    """A run of the two-way model, from the bag of words."""
    changes = {"method": {"name": "two_way"}, "init_from": str(pretrained.with_suffix("")), "steps": 4}
    recipe = toy.finetune_recipe(pretrained.with_name("two_way.yaml"), toy_collection, **changes)
    printed_by(toy.launch(2, ON_PATH, installed, "trainer.finetune", recipe))
    return recipe.with_suffix("")


def files_of(run: Path) -> dict[str, Any]:
    newest = checkpoint.find(run)
    content: dict[str, Any] = json.loads((newest / checkpoint.IMPORTS).read_text())
    return content


def test_it_is_trained_killed_and_resumed(pretrained: Path) -> None:
    losses = toy.scalars(pretrained.with_suffix(""), "loss/bag")
    assert [*losses] == [*range(1, 9)]
    assert [*losses.values()] == pytest.approx([np.log(300)] * 8, abs=0.3)  # chance, with 300 tokens
    assert {*files_of(pretrained.with_suffix(""))} == {"deepsiam_examples.bag_of_words", "deepsiam_examples.radam"}


def test_it_is_finetuned_ranked_and_exported(installed: Path, finetuned: Path, toy_collection: Path) -> None:
    for term in ("document", "query"):
        losses = [*toy.scalars(finetuned, f"loss/{term}").values()]
        assert losses == pytest.approx([np.log(4)] * 4, rel=0.9)  # chance, among 4 documents or queries
    results = finetuned.with_name("results.json")
    options = ["--collection", toy_collection, "--split", "test", "--system", f"two_way={finetuned}"]
    more = ["--metrics", "success@100", "--out", results]
    assert "Success@100" in printed_by(toy.run(ON_PATH, installed, "trainer.evaluate", *options, *more))
    (system,) = json.loads(results.read_text())["systems"].values()
    assert system["metrics"]["success@100"] == system["metrics"]["recall@100"] > 0.5  # of one relevant document each
    printed_by(toy.run(ON_PATH, installed, "trainer.export", finetuned, finetuned.with_name("export")))
    assert (finetuned.with_name("export") / "modules.json").is_file()


def test_its_source_is_a_command_whose_workers_find_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "abcd":
        (tmp_path / "in" / f"{name}.srt").write_text(SPOKEN.replace("fox", f"fox {name}"))
    options = ["--out", tmp_path / "out", "--vocab-size", "60", "--workers", "2"]
    printed_by(toy.run(ON_PATH, installed, "data_prep", "subtitles", tmp_path / "in", *options))
    assert Manifest.load(tmp_path / "out" / "shards").total("documents") == 4
    assert ".srt files" in printed_by(toy.run(ON_PATH, installed, "data_prep", "--help"))


def test_without_the_package_each_command_says_so_in_one_line(
    pretrained: Path, finetuned: Path, toy_collection: Path
) -> None:
    done = toy.launch(2, "trainer.pretrain", pretrained, "--resume")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "method.name: input should be one of 'seed', " in line
    assert line.endswith("not 'bag_of_words'; for one of your own, name its module in imports")
    options = ["--collection", toy_collection, "--split", "test", "--out", finetuned.with_name("none.json")]
    evaluate = ["trainer.evaluate", *options, "--system", f"it={finetuned}"]
    done = toy.run(*map(str, evaluate))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "it was trained with deepsiam_examples.two_way, which nothing imports unasked: install the package, or set "
        "DEEPSIAM_IMPORTS=deepsiam_examples.two_way"
    )
    named = {VARIABLE: "deepsiam_examples.two_way"}
    printed_by(toy.run(ON_PATH, EXAMPLES, *map(str, evaluate), **named))  # on the path, not installed


def test_a_recipe_may_name_the_modules(pretrained: Path) -> None:
    values = ["--resume", "imports=[deepsiam_examples.bag_of_words,deepsiam_examples.radam]", "steps=9"]
    assert "step 9/9" in printed_by(toy.launch(2, ON_PATH, EXAMPLES, "trainer.pretrain", pretrained, *values))
