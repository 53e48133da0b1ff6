"""A method is one file and one line of the registry: the examples in CONTRIBUTING.md train as printed."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests import toy, warm
from tests.trainer.runs import write_run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages, to which a test adds a method."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("deepsiam", "data_prep", "models", "trainer", "recipes", "ds_configs"):
        shutil.copytree(toy.ROOT / package, tmp_path / package, symlinks=True, ignore=ignore)
    return tmp_path


def add_method(checkout: Path, room: str, config: str) -> None:
    """Write the file in CONTRIBUTING.md that has the class `config` to models/`room`, and its line to the registry."""
    page, code = toy.CONTRIBUTING.read_text(), toy.example(f"class {config}(")
    (name,) = re.findall(r'name: Literal\["(\w+)"\]', code)
    line = f'"{name}": "{room}.{name}.{config}"'
    assert f"`{line}` in `{room.upper()}`" in page
    assert f"`{name}.py`" in page
    (checkout / "models" / room / f"{name}.py").write_text(code)
    registry = checkout / "models" / "registry.py"
    before, table, after = registry.read_text().partition(f"\n{room.upper()}: ")
    first, bracket, lines = after.partition("    {\n")
    registry.write_text(f"{before}{table}{first}{bracket}        {line},\n{lines}")


def run(checkout: Path, module: str, *arguments: object) -> str:
    """Run a command of the copy in one process; return its output."""
    environment = toy.environment() | {"MASTER_PORT": str(toy.free_port())}
    words = ("tests.models.copy_of_packages", str(checkout), module, *map(str, arguments))
    done = warm.run(*words, ranks=0, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(recipe: Path, term: str) -> list[float]:
    return list(toy.scalars(recipe.with_suffix(""), f"loss/{term}").values())


def test_a_pretraining_method_is_a_file_and_a_line(checkout: Path, shards: Path) -> None:
    recipe = toy.seed_recipe(checkout / "run.yaml", shards, steps=2, method={"name": "bag_of_words", "max_tokens": 32})
    add_method(checkout, "pretraining", "BagOfWordsConfig")
    run(checkout, "trainer.pretrain", recipe)
    assert losses(recipe, "bag") == pytest.approx([np.log(300)] * 2, abs=0.3)  # chance, with 300 tokens


def test_a_matching_model_is_a_file_and_a_line(checkout: Path, shards: Path, toy_collection: Path) -> None:
    pretrained = write_run(checkout / "seed", shards / "tokenizer.json", name="seed", max_tokens=32, decoder_layers=2)
    recipe = toy.write_recipe(
        checkout / "run.yaml",
        run=str(checkout / "run"),
        steps=2,
        log_every=1,
        deepspeed="cpu",
        init_from=str(pretrained),
        data={"collection": str(toy_collection), "lanes": 4, "window": 2},
        batch={"size": 8, "micro": 4},
        method={"name": "two_way", "max_query_tokens": 16, "max_document_tokens": 32},
        optimizer={"lr": 1e-3},
    )
    add_method(checkout, "matching", "TwoWayConfig")
    run(checkout, "trainer.finetune", recipe)
    for term in ("document", "query"):
        assert losses(recipe, term) == pytest.approx([np.log(4)] * 2, rel=0.9)  # chance, among 4 documents or queries
    options = ["--collection", toy_collection, "--split", "test", "--out", checkout / "results.json"]
    run(checkout, "trainer.evaluate", *options, "--system", f"two_way={recipe.with_suffix('')}")
    (system,) = json.loads((checkout / "results.json").read_text())["systems"].values()
    assert system["metrics"]["recall@100"] > 0.5  # chance is 100 of 120
