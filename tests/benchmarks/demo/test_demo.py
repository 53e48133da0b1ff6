"""The demo's comparisons: starts differ only in what they compare, settings are those chosen on the dev split."""

import json

import pytest

from benchmarks.demo.grid import OUTPUT, RATES, RECIPES, SIMILARITIES
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT


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
