"""Recipes for other numbers of ranks."""

import pytest

from deepsiam.trainer.cluster.planning.layout import fit
from deepsiam.trainer.training.data.loader import check_layout
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT


def recipe(name: str, *changes: str) -> PretrainRecipe:
    return load(PretrainRecipe, ROOT / "recipes" / f"{name}.yaml", changes)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 12, 48, 64, 96, 256, 1000, 1024])
@pytest.mark.parametrize("name", ["seed_base", "clm_base", "ict_base"])
def test_any_number_of_ranks_can_share_what_is_planned(name: str, ranks: int) -> None:
    keys = recipe(name)
    layout = fit(keys, ranks)
    check_layout(layout.recipe.data.lanes, layout.recipe.batch.micro_batches, ranks, layout.recipe.data.workers)
    assert layout.micro_batches * ranks * layout.recipe.batch.micro == layout.recipe.batch.size
    # applied to the recipe as overrides, the changes give this layout
    changed = recipe(name, *layout.changes)
    assert (changed.batch, changed.data, changed.steps) == (
        layout.recipe.batch,
        layout.recipe.data,
        layout.recipe.steps,
    )
    assert changed.batch.size * changed.steps >= keys.batch.size * keys.steps


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])  # docs/cluster.md
def test_a_recipe_that_allows_the_ranks_stays_as_it_is(ranks: int) -> None:
    layout = fit(recipe("seed_base"), ranks)
    assert layout.changes == ()
    assert layout.recipe == recipe("seed_base")
    assert layout.same_experiment


def test_the_changes_for_64_ranks_are_those_of_the_handbook() -> None:
    layout = fit(recipe("seed_base"), 64)
    assert layout.changes == ("batch.micro=4", "data.lanes=128")
    assert layout.same_experiment


def test_a_smaller_micro_batch_is_another_experiment_where_its_examples_are_compared() -> None:
    layout = fit(recipe("ict_base"), 64)
    assert layout.changes == ("batch.micro=64", "data.lanes=128")  # half of the negatives
    assert not layout.same_experiment
    assert fit(recipe("ict_base"), 32).same_experiment


def test_more_ranks_than_examples_make_larger_and_fewer_steps() -> None:
    layout = fit(recipe("seed_base"), 1024)
    assert set(layout.changes) == {"batch.size=1024", "batch.micro=1", "data.lanes=2048", "steps=250000"}
    assert not layout.same_experiment


def test_the_ranks_that_a_recipe_expects_become_those_of_the_plan() -> None:
    assert fit(recipe("seed_base", "ranks=4"), 8).changes == ("ranks=8",)
