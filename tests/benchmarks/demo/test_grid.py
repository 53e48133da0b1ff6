"""The demo's comparison is fair: random and pre-trained weights each use the settings that the grid chose for them."""

import json

import pytest

from benchmarks.demo.grid import OUTPUT, RATES, RECIPES, SIMILARITIES
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT


@pytest.mark.parametrize("start", RECIPES)
def test_the_demo_runs_the_settings_that_the_grid_chose(start: str) -> None:
    rows = [row for row in json.loads(OUTPUT.read_text())["grid"] if row["start"] == start]
    assert len(rows) == len(RATES) * len(SIMILARITIES)
    best = max(rows, key=lambda row: row["mrr@10"])
    recipe = load(FinetuneRecipe, ROOT / RECIPES[start])
    assert recipe.optimizer.lr == best["optimizer.lr"]
    assert recipe.method.similarity == best["method.similarity"]
    assert recipe.method.temperature == best["method.temperature"]


def test_both_starts_differ_only_in_weights_and_chosen_settings() -> None:
    seed, random = (load(FinetuneRecipe, ROOT / RECIPES[start]).model_dump() for start in ("seed", "random"))
    assert not seed.pop("random_weights")
    assert random.pop("random_weights")
    for recipe in (seed, random):
        recipe.pop("run")
        recipe["optimizer"].pop("lr")
        recipe["method"].pop("similarity")
        recipe["method"].pop("temperature")
    assert seed == random
