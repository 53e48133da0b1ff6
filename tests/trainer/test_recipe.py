"""Recipes: extending, overriding, and errors that name the key."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import InputError
from tests.toy import ROOT, TRUNK, write_recipe
from trainer.faults import Watchdog
from trainer.keyed import dropout_seed
from trainer.recipe import FinetuneRecipe, PretrainRecipe, load, read

SEED: dict[str, Any] = {
    "run": "runs/x",
    "steps": 10,
    "data": {"shards": "data/x"},
    "batch": {"size": 8, "micro": 4},
    "trunk": TRUNK,
    "method": {"name": "seed"},
    "optimizer": {"lr": 1e-4},
}


def refused(tmp_path: Path, *overrides: str, kind: type = PretrainRecipe, **values: Any) -> str:
    path = write_recipe(tmp_path / "r.yaml", **{**SEED, **values})
    with pytest.raises(InputError) as error:
        load(kind, path, overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_recipe_extends_another_and_overrides_win(tmp_path: Path) -> None:
    write_recipe(tmp_path / "base.yaml", **SEED)
    top = write_recipe(tmp_path / "top.yaml", extends="base.yaml", steps=20, batch={"micro": 2}, method={"window": 4})
    recipe = load(PretrainRecipe, top, ["optimizer.lr=2e-4", "method.window=all", "data.workers=2"])
    assert (recipe.steps, recipe.batch.size, recipe.batch.micro) == (20, 8, 2)
    assert (recipe.optimizer.lr, recipe.method.window, recipe.data.workers) == (2e-4, "all", 2)


def test_another_method_replaces_the_one_extended_and_inherits_none_of_its_keys(tmp_path: Path) -> None:
    write_recipe(tmp_path / "base.yaml", **{**SEED, "method": {"name": "seed", "window": 4, "max_tokens": 32}})
    top = write_recipe(tmp_path / "top.yaml", extends="base.yaml", method={"name": "mlm"})
    assert load(PretrainRecipe, top).method.model_dump() == {"name": "mlm", "max_tokens": 512, "blocks": "complete"}


def test_floats_without_a_point_are_floats_in_the_free_part_too(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED)
    assert load(PretrainRecipe, path, ["trunk.layer_norm_eps=1e-5"]).trunk["layer_norm_eps"] == 1e-5


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-30, max_value=1e30))
def test_every_way_to_write_a_float_is_read_as_it(value: float) -> None:
    from trainer.recipe import _Loader

    for text in (repr(value), f"{value:e}", f"{value:.17g}"):
        assert float(yaml.load(text, _Loader)) == float(text)
        if "e" in text:
            assert isinstance(yaml.load(text, _Loader), float)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("optimizer.lrr=1", ("optimizer.lrr: unknown key", "did you mean optimizer.lr?")),
        ("sede=3", ("sede: unknown key", "did you mean seed?")),
        ("method.decoder_layer=3", ("method.decoder_layer: unknown key", "method.decoder_layers")),
        ("steps=soon", ("steps:", "'soon'")),
        ("steps=1.5", ("steps:", "1.5")),
        ("method.window=none", ("method.window:", "'none'")),
        ("method.name=sed", ("method:", "'seed'")),
        ("batch.micro=3", ("batch.micro=3 does not divide batch.size=8",)),
        ("steps.more=1", ("steps is a single value",)),
        ("steps", ("key=value",)),
        ("optimizer.betas=[0.9]", ("optimizer.betas",)),
        ("optimizer.betas=[0.9, 1.0]", ("optimizer.betas:", "less than 1, not 1.0")),
        ("optimizer.betas=[-0.1, 0.9]", ("optimizer.betas:", "greater than or equal to 0")),
        ("optimizer.lr=.inf", ("optimizer.lr:", "finite number, not inf")),
        ("optimizer.weight_decay=.nan", ("optimizer.weight_decay:", "finite number, not nan")),
        ("data={mix: {a: {shard: s, weight: 1}}}", ("data.mix.a.shard: unknown key; did you mean data.mix.a.shards?",)),
        ("data={mix: {a: {shards: s, weight: .inf}}}", ("data.mix.a.weight:", "finite number, not inf")),
        ("faults.hang_seconds=1e300", ("faults.hang_seconds:", "less than or equal to")),
        ("seed=9223372036854775808", ("seed:", "less than 9223372036854775808")),
        ("run=2020-13-45", ("'run=2020-13-45': not YAML: month must be in 1..12",)),
        ("run=!!int x", ("'run=!!int x': not YAML",)),
        ("run=!!timestamp x", ("'run=!!timestamp x': not YAML",)),
        ("run=!!bool x", ("'run=!!bool x': not YAML",)),
        ("data=[}", ("'data=[}': not YAML",)),
        ("method={name: mlm, name: seed}", ("the key 'name' is there twice",)),
        ("trunk=" + "[" * 10_000, ("nested too deeply",)),
    ],
)
def test_what_is_wrong_is_named_with_its_path(tmp_path: Path, override: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, override)
    for word in words:
        assert word in message


def test_an_unknown_key_is_told_by_the_keys_of_its_own_method(tmp_path: Path) -> None:
    changed = refused(tmp_path, "method.name=mlm", "method.decoder_layers=3")
    assert "method.decoder_layers: unknown key" in changed
    assert "did you mean method.decoder_layers" not in changed
    assert "data.mix" not in changed
    assert "did you mean method.max_tokens?" in refused(tmp_path, "method.name=mlm", "method.max_token=3")


def test_the_largest_numbers_are_taken(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED)
    recipe = load(PretrainRecipe, path, [f"seed={2**63 - 1}", f"faults.hang_seconds={threading.TIMEOUT_MAX}"])
    dropout_seed(recipe.seed, 0)
    with Watchdog(recipe.faults.hang_seconds, rank=0):
        time.sleep(0.1)  # in which its thread would have ended


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **{k: v for k, v in SEED.items() if k != "optimizer"})
    with pytest.raises(InputError, match="optimizer: missing"):
        load(PretrainRecipe, path)


def test_hinge_without_negatives_is_an_impossible_combination(tmp_path: Path) -> None:
    values = {"data": {"collection": "c"}, "init_from": "runs/x", "method": {"name": "siamese", "loss": "hinge"}}
    path = write_recipe(tmp_path / "r.yaml", **{k: v for k, v in {**SEED, **values}.items() if k != "trunk"})
    with pytest.raises(InputError, match="set method.negatives_per_query"):
        load(FinetuneRecipe, path)


def test_a_circle_of_recipes_and_a_missing_one_and_damaged_yaml(tmp_path: Path) -> None:
    write_recipe(tmp_path / "a.yaml", extends="b.yaml")
    write_recipe(tmp_path / "b.yaml", extends="a.yaml")
    (tmp_path / "c.yaml").write_text("a: [1,\nb: }")
    (tmp_path / "d.yaml").write_text("!!python/object/apply:os.system ['true']")
    (tmp_path / "e.yaml").write_text("steps: 1\nbatch:\n  size: 8\n  micro: 4\n  size: 16\n")
    (tmp_path / "f.yaml").write_text("run: 2020-13-45")
    (tmp_path / "g.yaml").write_text("[" * 10_000)
    (tmp_path / "h.yaml").symlink_to(tmp_path / "i.yaml")
    (tmp_path / "i.yaml").symlink_to(tmp_path / "h.yaml")
    (tmp_path / "j.yaml").write_text("? [a]\n: 1\n? [b]\n: 2\n")
    (tmp_path / "k.yaml").write_text('extends: "a\\0b"')
    (tmp_path / "folder.yaml").mkdir()
    for name, words in {
        "a": "extends itself",
        "missing": "no such recipe",
        "c": "not YAML",
        "d": "not YAML",
        "e": "the key 'size' is there twice .*line 5",
        "f": "f.yaml: not YAML: month",
        "g": "g.yaml: nested too deeply",
        "h": "no such recipe can be read",
        "j": "not YAML",
        "k": "no such recipe can be read",
        "folder": "no such recipe can be read .Is a directory",
    }.items():
        with pytest.raises(InputError, match=words) as error:
            load(PretrainRecipe, tmp_path / f"{name}.yaml")
        assert "\n" not in str(error.value)


def test_a_yaml_merge_is_no_key_written_twice(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("a: &a {x: 1, y: 2}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, y: 4}\n")
    assert read(tmp_path / "r.yaml") == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 3, "y": 4}}


@pytest.mark.parametrize("length", ["max_query_tokens", "max_document_tokens"])
def test_texts_have_room_for_a_word(tmp_path: Path, length: str) -> None:
    values = {k: v for k, v in SEED.items() if k != "trunk"}
    values |= {"data": {"collection": "c"}, "init_from": "runs/x", "method": {"name": "siamese", length: 2}}
    with pytest.raises(InputError, match=f"method.{length}: .*greater than or equal to 3, not 2"):
        load(FinetuneRecipe, write_recipe(tmp_path / "r.yaml", **values))


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.name)
def test_every_recipe_of_the_project_is_valid(path: Path) -> None:
    kind = FinetuneRecipe if "siamese" in path.name else PretrainRecipe
    recipe = load(kind, path)
    assert recipe.batch.micro_batches % 2 == 0


def test_the_papers_recipe_is_the_papers() -> None:
    """SEED, sections 4.1 and A.1."""
    recipe = load(PretrainRecipe, ROOT / "recipes" / "seed_base.yaml")
    trunk, optimizer, method = recipe.trunk, recipe.optimizer, recipe.method
    assert (trunk["num_hidden_layers"], trunk["hidden_size"], trunk["intermediate_size"]) == (12, 768, 3072)
    assert (trunk["vocab_size"], method.max_tokens, recipe.batch.size, recipe.steps) == (32768, 512, 256, 1_000_000)
    assert (optimizer.lr, optimizer.betas, optimizer.eps) == (1e-4, (0.9, 0.999), 1e-6)
    assert (optimizer.warmup_steps, optimizer.weight_decay, optimizer.clip) == (10_000, 0.01, 1.0)
    assert (trunk["hidden_dropout_prob"], trunk["attention_probs_dropout_prob"]) == (0.1, 0.1)
    assert (method.decoder_layers, method.window, method.variant) == (3, 2, "paper")
    assert method.weights == {"mlm": 1.0, "decoder": 1.0}
