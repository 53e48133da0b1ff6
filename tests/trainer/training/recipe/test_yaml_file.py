"""Recipes from YAML: extending, overriding, and errors that name the key."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import _Loader, load, read
from tests.toy import ROOT, SEED_RECIPE, write_recipe


def refused(tmp_path: Path, *overrides: str, kind: type = PretrainRecipe, **values: Any) -> str:
    path = write_recipe(tmp_path / "r.yaml", **{**SEED_RECIPE, **values})
    with pytest.raises(InputError) as error:
        load(kind, path, overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_later_recipes_win_over_extended_ones_and_overrides_over_all(tmp_path: Path) -> None:
    write_recipe(tmp_path / "base.yaml", **SEED_RECIPE)
    write_recipe(tmp_path / "sizes.yaml", steps=20, batch={"micro": 2}, optimizer={"lr": 0.5, "warmup_steps": 3})
    changes = {"optimizer": {"lr": 0.25}, "method": {"window": 4}}
    top = write_recipe(tmp_path / "top.yaml", extends=["base.yaml", "sizes.yaml"], **changes)
    recipe = load(PretrainRecipe, top)
    assert (recipe.steps, recipe.batch.size, recipe.batch.micro) == (20, 8, 2)
    assert (recipe.optimizer.lr, recipe.optimizer.warmup_steps, recipe.method.window) == (0.25, 3, 4)
    recipe = load(PretrainRecipe, top, ["optimizer.lr=2e-4", "method.window=all", "data.workers=2"])
    assert (recipe.optimizer.lr, recipe.method.window, recipe.data.workers) == (2e-4, "all", 2)


@pytest.mark.parametrize("name", ["seed_small", "seed_small.yaml", "recipes/seed_small.yaml"])
def test_a_name_is_that_of_a_recipe_of_the_package(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(PretrainRecipe, Path(name), ["data.shards=x"]).method.name == "seed"
    Path(name).parent.mkdir(exist_ok=True)
    write_recipe(Path(name), steps=7)
    assert read(Path(name)) == {"steps": 7}
    with pytest.raises(InputError, match="cannot read: No such file"):
        read(Path("others", "seed_small.yaml"))
    (tmp_path / "mine").mkdir()
    mine = write_recipe(tmp_path / "mine" / "a.yaml", extends=name, steps=5)
    whole = read(ROOT / "recipes" / "seed_small.yaml")
    assert read(mine) == {**whole, "steps": 5}
    own = write_recipe(tmp_path / "mine" / "seed_small.yaml", seed=7)  # a file of one's own comes first
    assert read(write_recipe(tmp_path / "mine" / "b.yaml", extends=own.name))["seed"] == 7


def test_another_method_inherits_none_of_the_extended_one_s_keys_and_another_optimizer_all(tmp_path: Path) -> None:
    changes = {"method": {"name": "seed", "window": 4, "max_tokens": 32}, "optimizer": {"lr": 0.5, "clip": 2.0}}
    write_recipe(tmp_path / "base.yaml", **{**SEED_RECIPE, **changes})
    top = write_recipe(tmp_path / "top.yaml", extends="base.yaml", method={"name": "mlm"}, optimizer={"name": "adamax"})
    recipe = load(PretrainRecipe, top)
    assert recipe.method.model_dump() == {"name": "mlm", "max_tokens": 512, "blocks": "complete", "mask": 0.15}
    assert (recipe.optimizer.name, recipe.optimizer.lr, recipe.optimizer.clip) == ("adamax", 0.5, 2.0)


COLLECTION = {"collection": "c", "split": "dev", "lanes": 4}
WEIGHED = {"mix": {"a": {"collection": "a", "weight": 1}, "b": {"collection": "b", "weight": 2}}}
BY_SIZE = {"mix": {"a": {"collection": "a"}, "b": {"collection": "b"}}, "mix_temperature": 2}


@pytest.mark.parametrize(
    ("earlier", "later", "merged"),
    [
        ({"trunk": {"a": 1}}, {"init_from": "x"}, {"init_from": "x"}),
        ({"init_from": "x", "bidirectional": True}, {"trunk": {"a": 1}}, {"trunk": {"a": 1}}),
        ({"init_from": "x", "random_weights": True}, {"trunk": {"a": 1}}, {"trunk": {"a": 1}}),
        ({"trunk": {"a": 1, "b": 2}}, {"trunk": {"b": 3}}, {"trunk": {"a": 1, "b": 3}}),
        ({"trunk": {"a": 1}}, {"init_from": None}, {"trunk": {"a": 1}, "init_from": None}),  # null excludes nothing
        ({"trunk": {"a": 1}}, {"init_from": "x", "trunk": {"b": 2}}, {"init_from": "x", "trunk": {"b": 2}}),  # refused
        ({"data": {"shards": "s", "lanes": 4}}, {"data": {"mix": {"a": 1}}}, {"data": {"mix": {"a": 1}, "lanes": 4}}),
        ({"data": {"mix": {"a": 1}}}, {"data": {"shards": "s"}}, {"data": {"shards": "s"}}),
        ({"data": COLLECTION}, {"data": BY_SIZE}, {"data": {**BY_SIZE, "lanes": 4}}),
        ({"data": BY_SIZE}, {"data": {"collection": "c"}}, {"data": {"collection": "c"}}),
        ({"data": WEIGHED}, {"data": {"mix_temperature": 2}}, {"data": BY_SIZE}),
        ({"data": BY_SIZE}, {"data": {"mix": {"a": {"weight": 1}, "b": {"weight": 2}}}}, {"data": WEIGHED}),
    ],
)
def test_a_key_replaces_the_one_that_excludes_it_in_an_earlier_layer(
    tmp_path: Path, earlier: dict[str, Any], later: dict[str, Any], merged: dict[str, Any]
) -> None:
    write_recipe(tmp_path / "earlier.yaml", **earlier)
    write_recipe(tmp_path / "later.yaml", extends="earlier.yaml", **later)
    both = write_recipe(tmp_path / "list.yaml", extends=["earlier.yaml", "later.yaml"])
    words = [f"{key}={json.dumps(value)}" for key, value in dotted(later)]
    assert read(tmp_path / "later.yaml") == merged
    assert read(both) == merged
    assert read(tmp_path / "earlier.yaml", words) == merged


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        yield from dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-30, max_value=1e30))
def test_every_way_to_write_a_float_is_read_as_that_float(value: float) -> None:
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
        ("method.name=sed", ("method.name:", "'seed'")),
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
        ("method.name=bert", ("r.yaml: method.name: input should be one of 'seed', 'mlm', ", ", not 'bert'")),
        ("method.name=siamese", ("method.name: input", "not 'siamese': train it by trainer.finetune")),
        ("run=", ("run: input should be a path, not None",)),
        ("method={max_tokens: 32}", ("method.name: missing",)),
        ("method={name: mlm, name: seed}", ("the key 'name' appears twice",)),
        ("trunk=" + "[" * 10_000, ("nested too deeply",)),
    ],
)
def test_an_error_names_the_key_with_its_path(tmp_path: Path, override: str, words: tuple[str, ...]) -> None:
    message = refused(tmp_path, override)
    for word in words:
        assert word in message


def test_for_an_unknown_key_only_keys_of_its_own_method_are_suggested(tmp_path: Path) -> None:
    changed = refused(tmp_path, "method.name=mlm", "method.decoder_layers=3")
    assert "method.decoder_layers: unknown key" in changed
    assert "did you mean method.decoder_layers" not in changed
    assert "data.mix" not in changed
    assert "did you mean method.max_tokens?" in refused(tmp_path, "method.name=mlm", "method.max_token=3")


DAMAGED = {  # by the name of a file: its content or what it links to, and what is said
    "missing": (None, "missing.yaml: cannot read: No such file"),
    "a": ("extends: b.yaml", "extends itself"),
    "b": ("extends: a.yaml", "b.yaml: extends itself through b.yaml -> a.yaml"),
    "c": ("a: [1,\nb: }", "not YAML"),
    "d": ("!!python/object/apply:os.system ['true']", "not YAML"),
    "e": ("steps: 1\nbatch:\n  size: 8\n  micro: 4\n  size: 16\n", "the key 'size' appears twice .*line 5"),
    "f": ("run: 2020-13-45", "f.yaml: not YAML: month"),
    "g": ("[" * 10_000, "g.yaml: nested too deeply"),
    "h": (Path("i.yaml"), "cannot read this recipe"),
    "i": (Path("h.yaml"), "cannot read this recipe"),
    "j": ("? [a]\n: 1\n? [b]\n: 2\n", "not YAML"),
    "k": ('extends: "a\\0b"', "cannot read this recipe"),
    "l": ("extends: [c.yaml, l.yaml]", "c.yaml: not YAML"),
    "m": ("extends: [n.yaml]", "m.yaml: extends itself through m.yaml -> n.yaml"),
    "n": ("extends: [m.yaml]", "extends itself"),
    "o": ("extends: pipe.yaml", "pipe.yaml: not a plain file"),
    "p": ("1: 2", "a mapping of keys"),
    "large": ("#" * 300_000, "larger than 262,144 bytes"),
    "endless": (Path("/dev/zero"), "endless.yaml: not a plain file"),
    "folder": (None, "folder.yaml: not a plain file"),
    "pipe": (None, "pipe.yaml: not a plain file"),
}


def test_a_circle_of_recipes_and_a_missing_one_and_damaged_yaml(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, (content, _) in DAMAGED.items():
        if isinstance(content, Path):
            (tmp_path / f"{name}.yaml").symlink_to(content)
        elif content is not None:
            (tmp_path / f"{name}.yaml").write_text(content)
    for name, (_, words) in DAMAGED.items():
        with pytest.raises(InputError, match=words) as error:
            load(PretrainRecipe, tmp_path / f"{name}.yaml")
        assert "\n" not in str(error.value)


LAUGHS = "[{}]".format(", ".join(["&a0 [ha]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))]))


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("steps", LAUGHS, "has too many values"),
        ("trunk", "{x: " + LAUGHS + "}", "has too many values"),
        ("data", "{mix: " + LAUGHS + "}", "has too many values"),
        ("trunk", "{a: &a {x: 1}, b: &b {<<: [" + "*a, " * 99 + "*a]}, c: {<<: [" + "*b, " * 99 + "*b]}}", "too many"),
        ("steps", "[" + "1, " * 20_000 + "1]", "has too many values"),
        ("trunk", "&a [*a]", r"\*a contains itself"),
        ("trunk", "{x: &a {y: [*a]}}", "contains itself"),
        ("trunk", "[" * 51 + "]" * 51, "nested too deeply"),
        ("trunk", "*nothing", "undefined alias"),
    ],
)
def test_values_without_end_are_refused_before_they_are_built(tmp_path: Path, key: str, text: str, words: str) -> None:
    (tmp_path / "r.yaml").write_text(f"{key}: {text}\n")
    for read_it in (
        lambda: read(tmp_path / "r.yaml"),
        lambda: read(write_recipe(tmp_path / "o.yaml"), [f"{key}={text}"]),
    ):
        with pytest.raises(InputError, match=words) as caught:
            read_it()
        assert len(str(caught.value)) < 500 + len(str(tmp_path))


def test_a_long_wrong_value_is_shown_in_part(tmp_path: Path) -> None:
    message = refused(tmp_path, steps=["long"] * 5000)
    assert "steps: input should be a valid integer, not ['long'" in message
    assert len(message) < 300 + len(str(tmp_path))


def test_recipes_that_extend_one_another_many_times_are_each_read_once(tmp_path: Path) -> None:
    for number in range(40):
        write_recipe(tmp_path / f"{number}.yaml", extends=[f"{number + 1}.yaml"] * 3, **{f"k{number}": number})
    write_recipe(tmp_path / "40.yaml", end=1)
    assert len(read(tmp_path / "0.yaml")) == 41
    for number in range(41, 100):
        write_recipe(tmp_path / f"{number}.yaml", extends=f"{number + 1}.yaml")
    with pytest.raises(InputError, match="91.yaml: is extended through 50 recipes"):
        read(tmp_path / "41.yaml")


def test_an_override_changes_one_section_of_an_alias_and_replaces_null(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("validation: null\ntrunk: &t {hidden_size: 32}\nfaults: *t\n")
    values = read(path, ["trunk.hidden_size=64", "validation.every=5", "validation.split=dev"])
    assert (values["trunk"], values["faults"]) == ({"hidden_size": 64}, {"hidden_size": 32})
    assert values["validation"] == {"every": 5, "split": "dev"}


def test_aliases_and_merges_are_read(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("a: &a {x: 1, y: [2]}\nb: &b {<<: *a, x: 3}\nc: {<<: *b, y: 4}\nd: [*a, *a]\n")
    a = {"x": 1, "y": [2]}
    assert read(tmp_path / "r.yaml") == {"a": a, "b": {"x": 3, "y": [2]}, "c": {"x": 3, "y": 4}, "d": [a, a]}
