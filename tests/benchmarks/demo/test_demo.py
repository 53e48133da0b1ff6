"""The demo's comparisons: starts differ only in what they compare, settings are those chosen on the dev split."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.demo import library, long, parts
from benchmarks.demo.grid import OUTPUT, RATES, RECIPES, SIMILARITIES
from benchmarks.demo.shared_machine import ALONE, BESIDE, SPINNING, summary
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer.ranking.evaluation.metrics import Metrics
from deepsiam.trainer.ranking.ranker import ModelRanker
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.benchmarks.fake_training import FakeTraining
from tests.toy import ROOT
from tests.trainer.runs import write_run


@pytest.mark.parametrize("start", RECIPES)
def test_the_demo_runs_the_settings_that_the_grid_chose(start: str) -> None:
    rows = [row for row in json.loads(OUTPUT.read_text())["grid"] if row["start"] == start]
    assert len(rows) == len(RATES) * len(SIMILARITIES)
    best = max(rows, key=lambda row: row["mrr@10"])
    recipe = load(FinetuneRecipe, ROOT / RECIPES[start])
    assert recipe.optimizer.lr == best["optimizer.lr"]
    method = recipe.method
    assert (method.similarity, method.temperature) == (best["method.similarity"], best["method.temperature"])


def test_recipes_differ_only_in_what_they_compare() -> None:
    grid = {"run": True, "random_weights": True, "optimizer": {"lr"}, "method": {"similarity", "temperature"}}
    tuned = [load(FinetuneRecipe, ROOT / RECIPES[start]) for start in ("seed", "random")]
    long_runs = [load(PretrainRecipe, ROOT / "recipes" / f"demo_long_{name}.yaml") for name in ("seed", "mlm")]
    for (one, other), compared in ((tuned, grid), (long_runs, {"run": True, "method": True})):
        assert one != other
        assert one.model_dump(exclude=compared) == other.model_dump(exclude=compared)


def test_a_rate_is_chosen_for_each_start_and_number_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's MRR is its learning rate."""
    fake = FakeTraining()

    def evaluate(run: Path, split: str) -> Metrics:
        return Metrics({"mrr@10": np.full(3, fake.finetuned[run].optimizer.lr)})

    monkeypatch.setattr(long, "train", fake.train)
    monkeypatch.setattr(long, "evaluate_split", evaluate)
    monkeypatch.setattr(long, "load_trained", lambda run: run)
    monkeypatch.setattr(long, "ranker_of", lambda run, collection: run)
    bench = long.LabelsBench(None, tmp_path / "results.json")  # type: ignore[arg-type]
    assert bench.best_rate("random", None) == max(long.RATES)
    recipes = fake.finetuned.values()
    assert [recipe.optimizer.lr for recipe in recipes] == list(long.RATES)
    assert {(recipe.random_weights, recipe.data.pairs) for recipe in recipes} == {(True, None)}


def test_the_starts_of_the_parts_differ_in_pre_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTraining()
    monkeypatch.setattr(parts, "train", fake.train)
    monkeypatch.setattr(parts, "embeddings_only", lambda run, out, seed: out)
    starts = parts.pretrained()
    runs = parts.tuned(starts)
    assert set(fake.recipes) == {*starts.values(), *(run for by_rate in runs.values() for run in by_rate.values())}
    alone, after_seed = (fake.pretrained[starts[name]].model_dump() for name in ("ICT", "SEED, then ICT"))
    assert (alone.pop("init_from"), after_seed.pop("trunk")) == (None, None)
    assert alone.pop("trunk") == fake.pretrained[starts["SEED"]].model_dump()["trunk"]
    assert after_seed.pop("init_from") == starts["SEED"]
    assert alone.pop("run") != after_seed.pop("run")
    assert alone == after_seed
    for name, by_rate in runs.items():
        assert tuple(by_rate) == parts.RATES
        for rate, run in by_rate.items():
            recipe = fake.finetuned[run]
            assert (recipe.optimizer.lr, recipe.random_weights) == (rate, name == "random weights")
            assert recipe.init_from == starts.get(name, recipe.init_from)
    pre, fine = (
        {"seed": parts.SEED, "ict": parts.ICT},
        {"from_random": parts.SIAMESE_RANDOM, "from_seed": parts.SIAMESE},
    )
    for kind, files in ((PretrainRecipe, pre), (FinetuneRecipe, fine)):  # the demo's runs are taken as they are
        for name, file in files.items():
            assert fake.recipes[parts.DEMO / name] == load(kind, ROOT / file)


def test_the_run_is_chosen_on_the_development_split(
    shards: Path, toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = {"name": "siamese", "max_query_tokens": 16, "max_document_tokens": 16}
    runs = {
        rate: write_run(tmp_path / str(seed), shards / "tokenizer.json", seed=seed, **method)
        for seed, rate in enumerate((1e-3, 3e-4))
    }
    dev = {str(runs[1e-3]): 0.1, str(runs[3e-4]): 0.2}

    def evaluate(ranker: ModelRanker, split: str) -> SimpleNamespace:
        assert split == "dev"
        return SimpleNamespace(means={"mrr@10": dev[str(ranker.loaded.recipe.run)]})  # type: ignore[attr-defined]

    monkeypatch.setattr(parts, "evaluate_split", evaluate)
    row = parts.measured(Collection.open(toy_collection), runs)
    assert (row["lr"], row["dev_mrr@10_by_lr"]) == (3e-4, {"0.001": 0.1, "0.0003": 0.2})
    bm25 = {"mrr@10": 0.5, "recall@100": 0.75}
    lines = parts.table({"SEED": {**row, "weight": 0.6, "bm25": bm25}}).splitlines()
    assert lines[2].startswith(f"| SEED | 0.0003 | 0.2000 | {row['test']['mrr@10']:.4f} | ")
    assert lines[2].endswith(f" | {row['fused']['mrr@10']:.4f} (0.6) |")
    assert lines[3] == "| BM25 | | | 0.5000 | 0.7500 | |"


def test_ratios_are_of_each_round_and_of_all_commands_together() -> None:
    one = {ALONE: [1.0, 2.0], BESIDE: [2.0, 3.0], SPINNING: [4.0, 2.0]}
    other = {ALONE: [3.0, 2.0], BESIDE: [4.0, 3.0], SPINNING: [4.0, 6.0]}
    results = summary({"one": one, "other": other})
    assert results["one"][BESIDE] == {"min": 1.5, "median": 1.75, "max": 2.0}
    assert results["together"]["seconds"][SPINNING] == [8.0, 8.0]
    assert results["together"][BESIDE] == {"min": 1.5, "median": 1.5, "max": 1.5}


def test_the_library_takes_the_recipes_steps() -> None:
    recipe = load(FinetuneRecipe, ROOT / "recipes" / "demo_published.yaml")
    arguments = library._arguments(recipe, os.devnull)
    assert arguments.max_steps == recipe.steps
    assert arguments.per_device_train_batch_size == recipe.batch.size
    assert arguments.learning_rate == recipe.optimizer.lr
    assert arguments.warmup_steps == recipe.optimizer.warmup_steps
    assert arguments.lr_scheduler_type == recipe.optimizer.schedule
