"""The trainings of a benchmark, without training: what the launcher would read of each."""

from pathlib import Path

from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT


class FakeTraining:
    """`train` stands in for `benchmarks.common.training.train`: it records the recipe of every run, each once."""

    def __init__(self) -> None:
        self.recipes: dict[Path, Recipe] = {}

    def train(self, module: str, recipe: str, run: Path, settings: dict[str, object], ranks: int = 2) -> None:
        assert run not in self.recipes, "trained twice"
        kind: type[Recipe] = PretrainRecipe if module == "trainer.pretrain" else FinetuneRecipe
        overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
        self.recipes[run] = load(kind, ROOT / recipe, overrides)

    @property
    def pretrained(self) -> dict[Path, PretrainRecipe]:
        return {run: recipe for run, recipe in self.recipes.items() if isinstance(recipe, PretrainRecipe)}

    @property
    def finetuned(self) -> dict[Path, FinetuneRecipe]:
        return {run: recipe for run, recipe in self.recipes.items() if isinstance(recipe, FinetuneRecipe)}
