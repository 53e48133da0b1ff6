"""The runs behind SEED's figures differ only in what they compare."""

from pathlib import Path

import pytest

from benchmarks.claims import seed_figures
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, PretrainRecipe]:
    """The recipe of every run, as the launcher would read it."""
    by_run = {}

    def train(module: str, recipe: str, run: Path, settings: dict[str, object]) -> None:
        overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
        by_run[run] = load(PretrainRecipe, Path(recipe), overrides)

    monkeypatch.setattr(seed_figures, "train", train)
    runs = seed_figures.pretrained(tmp_path / "shards", tmp_path, 100)
    assert set(by_run) == set(runs.values())
    return {name: by_run[run] for name, run in runs.items()}


def test_the_settings_differ_in_what_the_decoder_reads(recipes: dict[str, PretrainRecipe]) -> None:
    for attention, window in (("window 2", 2), ("whole past", "all")):
        methods = {name: recipes[f"{name}, {attention}"].method for name in seed_figures.SETTINGS}
        for name, method in methods.items():
            assert (method.name, method.decoder_layers, method.window) == ("seed", 3, window)
            assert method.freeze_encoder is name.endswith("RoBERTa-CLS")
            assert method.cls is not name.startswith("no-CLS")
            from_mlm = recipes[f"{name}, {attention}"].init_from == recipes["mlm"].run
            assert from_mlm is method.freeze_encoder
        assert methods["no-CLS"].loss_weights.mlm == 0
    for recipe in recipes.values():
        assert (recipe.steps, recipe.batch, recipe.optimizer) == (100, recipes["mlm"].batch, recipes["mlm"].optimizer)
        assert recipe.data == recipes["mlm"].data


def test_figure_3_compares_settings_and_the_others_attention(
    recipes: dict[str, PretrainRecipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(seed_figures, "run_or_exit", commands.append)
    runs = {name: recipe.run for name, recipe in recipes.items()}
    seed_figures.draw(runs, tmp_path / "held_out", tmp_path)
    drawn = {Path(command[command.index("--out") + 1]).stem: command for command in commands}
    restricted, full = (f"no-CLS={runs[f'no-CLS, {attention}']}" for attention in seed_figures.ATTENTION)
    assert restricted in drawn["figure_3b"]
    assert full in drawn["figure_3a"]
    assert "cosine" in drawn["figure_4"]
    assert f"masked LM alone={runs['mlm']}" in drawn["figure_5"]
    assert "loss/mlm" in drawn["figure_5"]
