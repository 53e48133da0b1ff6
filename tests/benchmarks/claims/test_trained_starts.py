"""Claims about starts: all are trained alike, each with a rate chosen off the ranked queries; measured once."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.claims import matching, pretraining, stages
from benchmarks.claims.matching import MatchingBench
from benchmarks.claims.matching_collections import Fold, Model, Part, Study, held_out
from benchmarks.claims.matching_tables import table
from benchmarks.claims.material import MIXED, Material
from benchmarks.claims.pretraining import PAIRS, PretrainingBench
from benchmarks.claims.stages import CHAINS, COLLECTIONS, StagesBench
from benchmarks.claims.tunings import RATES, Values
from benchmarks.common import training
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from tests.benchmarks.fake_training import FakeTraining
from tests.toy import ROOT

TOKENS, TOKENS_A_STEP = 1000, 300.0
ITEMS = 9  # queries of a split in the study of matching models


class Starts(FakeTraining):
    """Ranking as well: MRR is the learning rate, on `dev` minus its distance from 1e-3."""

    def __init__(self) -> None:
        super().__init__()
        self.ranked: list[tuple[Path, str]] = []

    def rank(self, run: Path, collection: object, splits: list[str]) -> Values:
        self.ranked += [(run, split) for split in splits]
        rate = self.recipes[run].optimizer.lr
        return {split: [rate if split != "dev" else -abs(rate - 1e-3)] for split in splits}

    def measure(self, kind: str, run: Path, collection: object, split: str) -> Metrics:
        """Prefer one rate in the first third of a split, another in the rest."""
        self.ranked.append((run, split))
        recipe, first = self.recipes[run], np.arange(ITEMS) < ITEMS / 3
        liked = np.where(first, recipe.optimizer.lr == matching.RATES[1], recipe.optimizer.lr == matching.RATES[0])
        return Metrics({"mrr": liked + recipe.seed, "other": np.zeros(ITEMS)})


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Starts:
    starts = Starts()
    monkeypatch.setattr(training, "train", starts.train)
    monkeypatch.setattr(training, "tokens_a_step", lambda recipe: TOKENS_A_STEP)
    for benchmark in (pretraining, stages):
        monkeypatch.setattr(benchmark, "rank", starts.rank)
    monkeypatch.setattr(pretraining, "embeddings_only", lambda run, out, seed: run / f"embeddings {seed}")
    monkeypatch.setattr(matching, "measure", starts.measure)
    monkeypatch.setattr(matching, "load_trained", lambda run: run)
    monkeypatch.setattr(matching, "baseline", lambda *_: Metrics({"mrr": np.ones(ITEMS), "other": np.ones(ITEMS)}))
    monkeypatch.setattr(matching.Collection, "open", lambda path: path)
    return starts


@pytest.fixture
def ready(tmp_path: Path) -> Material:
    shards = {source: tmp_path / source for source in (*MIXED, "reddit")}
    docstrings, classic = (SimpleNamespace(directory=tmp_path / name) for name in ("docstrings", "classic"))
    return Material(shards, docstrings, classic)  # type: ignore[arg-type]


@pytest.fixture
def bench(ready: Material, tmp_path: Path) -> PretrainingBench:
    return PretrainingBench(ready, tmp_path, TOKENS)


def staged(ready: Material, out: Path, tokens: int) -> StagesBench:
    return StagesBench(ready, {source: out / "pairs" / source for source in ready.shards}, ready.classic, out, tokens)


def test_a_rate_is_chosen_with_the_first_seed_and_off_the_ranked_queries(
    bench: PretrainingBench, trained: Starts
) -> None:
    values = bench.ranked("mlm", 1)
    tried = trained.finetuned.values()
    assert len(tried) == (len(PAIRS) + 2) * len(RATES)
    assert {recipe.data.pairs for recipe in tried} == {500, 1500, None}
    assert {recipe.optimizer.lr for recipe in tried} == set(RATES)
    chosen = {**dict.fromkeys(PAIRS, 1e-3), "cranfield": max(RATES), "vaswani": max(RATES)}
    assert {collection: set(mrr) for collection, mrr in values.items()} == {c: {rate} for c, rate in chosen.items()}
    of_test = [run for run, split in trained.ranked if split == "test" or split.endswith(("-first", "-second"))]
    assert len(of_test) == len(PAIRS) + 4  # two folds of two collections; only with the chosen rate
    bench.ranked("mlm", 2)
    second = sorted(recipe.optimizer.lr for recipe in trained.finetuned.values() if recipe.seed == 2)
    row = bench.row("mlm", [1, 2])
    assert sorted(row.rates.values()) == second == sorted([*[1e-3] * len(PAIRS), max(RATES), max(RATES)])
    assert len(row.seeds) == 2


MODELS = {"one": Model("siamese_small", {"steps": 7}), "two": Model("colbert_small")}
STUDY = Study("irc", "lists", Path("collection"), held_out("irc"), MODELS, ("mrr", "other"))


def matched(out: Path) -> MatchingBench:
    return MatchingBench({source: out / source for source in MIXED}, out, TOKENS)


def test_matching_models_choose_their_rate_on_the_first_third_and_report_the_rest(
    trained: Starts, tmp_path: Path
) -> None:
    values = matched(tmp_path).results(STUDY, ["random", "seed"], [1, 2])
    assert values["IRC", "mrr", "one", "seed"] == [[1.0] * 6, [2.0] * 6]  # these items prefer the other rate
    assert values["IRC", "mrr", "", ""] == [[1.0] * 6]
    recipes = trained.finetuned.values()
    tried = sorted((recipe.seed, recipe.optimizer.lr) for recipe in recipes)
    first, second = matching.RATES
    assert tried == sorted(4 * [(1, first), (1, second), (2, second)])  # two models, two starts
    assert {str(recipe.init_from) for recipe in recipes} == {str(tmp_path / start) for start in matching.PRETRAINED}
    assert {recipe.random_weights for recipe in recipes if recipe.init_from == tmp_path / "mlm"} == {True}
    assert {recipe.steps for recipe in recipes if recipe.method.name == "siamese"} == {7}
    measured = len(trained.ranked)
    assert matched(tmp_path).results(STUDY, ["random", "seed"], [1, 2]) == values
    assert len(trained.ranked) == measured


def test_matching_models_are_ranked_on_the_other_fold_and_the_folds_joined(trained: Starts, tmp_path: Path) -> None:
    others = {"first": "second", "second": "first"}
    folds = tuple(Fold(a, (Part(f"{a}-dev"),), {"x": Part(f"x-{b}")}) for a, b in others.items())
    study = Study("classic", "pool", Path("collection"), folds, MODELS, ("mrr", "other"))
    values = matched(tmp_path).results(study, ["seed"], [1])
    assert len(values["x", "mrr", "one", "seed"][0]) == 2 * ITEMS
    split_of = {run: recipe.data.split for run, recipe in trained.finetuned.items()}
    assert set(split_of.values()) == set(others)
    for run, split in trained.ranked:
        assert split in (f"x-{others[split_of[run]]}", f"{split_of[run]}-dev")


def test_the_tables_in_the_docs_are_those_of_the_committed_measurements(
    ready: Material, trained: Starts, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    for name in ("matching", "stages"):
        shutil.copy(ROOT / "benchmarks" / "results" / f"{name}_results.json", tmp_path / f"{name}.json")
    for study in matching.studies(Path()):
        values = matched(tmp_path).results(study, matching.STARTS, range(1, 4))
        for title in dict.fromkeys(key[0] for key in values):
            assert table(study, values, title, matching.STARTS) in page
    bench = staged(ready, tmp_path, 4_000_000)
    for name in CHAINS:
        seeds = [bench.ranked(name, seed) for seed in (1, 2, 3)]
        (cells,) = re.findall(rf"^\| {name} \| (.*) \|$", page, re.MULTILINE)
        means = [f"{np.mean([seed[of] for seed in seeds]):.4f}" for of in COLLECTIONS]
        assert [cell.split()[0] for cell in cells.split(" | ")] == means
    assert not trained.recipes  # nothing is measured again
