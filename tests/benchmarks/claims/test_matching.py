"""The benchmark of matching models: rates are chosen on items that are not reported; every model is trained alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.claims import matching
from benchmarks.claims.matching import PRETRAINED, RATES, STARTS, MatchingBench
from benchmarks.claims.matching_collections import (
    Fold,
    Model,
    Part,
    Study,
    held_out,
    studies,
)
from benchmarks.claims.matching_tables import p_values, table
from benchmarks.common import training
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT

ITEMS = 9


class Trained:
    """Fake training, which records recipes, and measuring: a split's first third prefers one rate, the rest another."""

    def __init__(self) -> None:
        self.recipes: dict[Path, Recipe] = {}
        self.measured: list[tuple[Path, str]] = []

    def train(self, module: str, recipe: str, run: Path, settings: dict[str, object], ranks: int) -> None:
        assert run not in self.recipes  # trained once
        kind = PretrainRecipe if module == "trainer.pretrain" else FinetuneRecipe
        overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
        self.recipes[run] = load(kind, ROOT / recipe, overrides)

    def measure(self, kind: str, run: Path, collection: object, split: str) -> Metrics:
        self.measured.append((run, split))
        recipe = self.recipes[run]
        liked = np.where(np.arange(ITEMS) < ITEMS / 3, recipe.optimizer.lr == RATES[1], recipe.optimizer.lr == RATES[0])
        return Metrics({"mrr": liked + recipe.seed, "other": np.zeros(ITEMS)})


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    found = Trained()
    monkeypatch.setattr(training, "train", found.train)
    monkeypatch.setattr(matching, "measure", found.measure)
    monkeypatch.setattr(matching, "load_trained", lambda run: run)
    monkeypatch.setattr(matching, "baseline", lambda *_: Metrics({"mrr": np.ones(ITEMS), "other": np.ones(ITEMS)}))
    monkeypatch.setattr(matching, "tokens_a_step", lambda recipe: 300.0)
    monkeypatch.setattr(matching.Collection, "open", lambda path: path)
    return found


MODELS = {"one": Model("siamese_small", {"steps": 7}), "two": Model("colbert_small")}
STUDY = Study("irc", "lists", Path("collection"), held_out("irc"), MODELS, ("mrr", "other"))


def bench(out: Path) -> MatchingBench:
    shards = {source: out / source for source in matching.material.MIXED}
    return MatchingBench(shards, out, tokens=1000)


def test_the_rate_is_chosen_on_the_first_third_and_the_rest_is_reported(trained: Trained, tmp_path: Path) -> None:
    found = bench(tmp_path).results(STUDY, ["random", "seed"], [1, 2])
    assert found["IRC", "mrr", "one", "seed"] == [[1.0] * 6, [2.0] * 6]  # these items prefer the other rate
    assert found["IRC", "mrr", "", ""] == [[1.0] * 6]
    finetuned = [recipe for recipe in trained.recipes.values() if isinstance(recipe, FinetuneRecipe)]
    tried = sorted((recipe.seed, recipe.optimizer.lr) for recipe in finetuned)
    assert tried == sorted(4 * [(1, RATES[0]), (1, RATES[1]), (2, RATES[1])])  # two models, two starts
    assert {str(recipe.init_from) for recipe in finetuned} == {str(tmp_path / start) for start in PRETRAINED}
    assert {recipe.random_weights for recipe in finetuned if recipe.init_from == tmp_path / "mlm"} == {True}
    assert {recipe.steps for recipe in finetuned if recipe.method.name == "siamese"} == {7}
    again = Trained()  # all measurements are kept on disk
    assert bench(tmp_path).results(STUDY, ["random", "seed"], [1, 2]) == found
    assert not again.recipes


def test_folds_are_joined(trained: Trained, tmp_path: Path) -> None:
    folds = tuple(
        Fold(a, (Part(f"{a}-dev"),), {"x": Part(f"x-{b}")}) for a, b in (("first", "second"), ("second", "first"))
    )
    study = Study("classic", "pool", Path("collection"), folds, MODELS, ("mrr", "other"))
    found = bench(tmp_path).results(study, ["seed"], [1])
    assert len(found["x", "mrr", "one", "seed"][0]) == 2 * ITEMS
    splits = {recipe.data.split for recipe in trained.recipes.values() if isinstance(recipe, FinetuneRecipe)}
    assert splits == {"first", "second"}
    for run, split in trained.measured:
        other = {"first": "second", "second": "first"}[trained.recipes[run].data.split]  # type: ignore[attr-defined]
        assert split in (f"x-{other}", f"{trained.recipes[run].data.split}-dev")  # type: ignore[attr-defined]


def test_tables() -> None:
    rng = np.random.default_rng(0)
    found: Any = {("IRC", m, "", ""): [[0.5] * 40] for m in STUDY.metrics}
    for start, gain in (("random", 0.0), ("seed", 0.5)):
        for model, more in (("one", 0.0), ("two", 0.25)):
            values = [[float(v) + gain + more for v in rng.random(40) / 100] for _ in range(2)]
            found |= {("IRC", m, model, start): values for m in STUDY.metrics}
    lines = table(STUDY, found, "IRC", ["random", "seed"]).splitlines()
    assert lines[0] == "| IRC | random weights | SEED |"
    means = [np.mean(of_seed) for of_seed in found["IRC", "mrr", "two", "seed"]]
    spread = abs(means[0] - means[1]) / 2**0.5  # the standard deviation of two numbers
    other = np.mean(found["IRC", "other", "two", "seed"])
    assert lines[3].endswith(f"| {np.mean(means):.4f} ± {spread:.4f} ({other:.4f}) |")
    assert lines[-1] == "| BM25 | 0.5000 (0.5000) | |"
    tests = p_values(STUDY, found, "IRC", ["random", "seed"]).splitlines()
    assert [line.split(" against ")[0].rsplit(" ", 1)[0] for line in tests] == [
        "- from random weights: two",
        "- from SEED: two",
        "- one: from SEED",
        "- two: from SEED",
    ]
    assert all(line.endswith("p = 0.0001") for line in tests)


def test_the_tables_in_the_docs_are_those_of_the_committed_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object) -> None:
        raise AssertionError("a value of the tables is not in matching_results.json")

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(matching, "tokens_a_step", lambda recipe: 1500.0)
    (tmp_path / "matching.json").write_bytes((ROOT / "benchmarks/results/matching_results.json").read_bytes())
    text = (ROOT / "docs/results.md").read_text()
    for study in studies(Path()):
        found = bench(tmp_path).results(study, STARTS, range(1, 4))
        for title in dict.fromkeys(key[0] for key in found):
            assert table(study, found, title, STARTS) in text
