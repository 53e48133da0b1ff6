"""The keys of recipes: their limits, combinations that cannot work, and the recipes of the project."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.adapters import Adapters
from deepsiam.trainer.training.data.order import dropout_seed
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import load, read
from deepsiam.trainer.training.run.job import complete
from deepsiam.trainer.training.run.watchdog import Watchdog
from tests.toy import ROOT, SEED_RECIPE, write_recipe


def test_the_largest_numbers_are_accepted(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    recipe = load(PretrainRecipe, path, [f"seed={2**63 - 1}", f"faults.hang_seconds={threading.TIMEOUT_MAX}"])
    dropout_seed(recipe.seed, 0)
    with Watchdog(recipe.faults.hang_seconds, rank=0):
        time.sleep(0.1)  # a longer timeout would end the watchdog's thread at once


@pytest.mark.parametrize("value", ["all", "all_but_embeddings", 0, 3])
def test_what_is_trained_is_named_or_counted(tmp_path: Path, value: str | int) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    assert load(PretrainRecipe, path).optimizer.train == "all"
    assert load(PretrainRecipe, path, [f"optimizer.train={value}"]).optimizer.train == value


@pytest.mark.parametrize("value", ["some", "-1", "true", "1.0", "null"])
def test_anything_else_is_refused(tmp_path: Path, value: str) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    with pytest.raises(InputError, match=r"^\S+: optimizer.train: "):
        load(PretrainRecipe, path, [f"optimizer.train={value}"])


LORA = "optimizer.train={lora: {rank: 4, targets: [query]}}"
STARTED = ["trunk=null", "init_from=runs/start"]


def test_adapters_are_keys_with_defaults(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    trained = load(PretrainRecipe, path, [*STARTED, LORA]).optimizer.train
    assert isinstance(trained, Adapters)
    assert trained.lora.model_dump() == {"rank": 4, "alpha": 32, "dropout": 0.05, "targets": ["query"]}


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ("{rank: 0}", r"optimizer.train.lora.rank: input should be greater than 0, not 0"),
        ("{dropout: 1.0}", r"optimizer.train.lora.dropout: input should be less than 1, not 1.0"),
        ("{targets: []}", r"optimizer.train.lora.targets: list should have at least 1 item"),
        ("{ranks: 4}", r"optimizer.train.lora.ranks: unknown key; did you mean optimizer.train.lora.rank\?"),
        ("4", r"optimizer.train.lora: input should be a valid dictionary"),
    ],
)
def test_wrong_keys_of_adapters_are_named(tmp_path: Path, lora: str, said: str) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    with pytest.raises(InputError, match=rf"^\S+: {said}"):
        load(PretrainRecipe, path, [*STARTED, f"optimizer.train={{lora: {lora}}}"])


def test_adapters_without_their_kind_are_refused(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    with pytest.raises(InputError, match=r"^\S+: optimizer.train.lora: missing; optimizer.train.lor: unknown key"):
        load(PretrainRecipe, path, [*STARTED, "optimizer.train={lor: {}}"])


@pytest.mark.parametrize("changes", [[], [*STARTED, "method={name: siamese}", "random_weights=true"]])
def test_adapters_of_random_weights_are_refused(tmp_path: Path, changes: list[str]) -> None:
    values = {**SEED_RECIPE, "data": {"collection": "c"}} if changes else SEED_RECIPE
    path = write_recipe(tmp_path / "r.yaml", **values)
    with pytest.raises(
        InputError, match=r"^\S+: optimizer.train: adapters leave .* name a trained encoder in init_from"
    ):
        load(FinetuneRecipe if changes else PretrainRecipe, path, [*changes, LORA])


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ("{lr: 1, schedule: wsd}", "optimizer.decay_steps: .*: set how many"),
        ("{lr: 1, decay_steps: 2}", "optimizer.decay_steps: .*: set it to 0 for schedule=linear"),
        ("{lr: 1, schedule: wsd, warmup_steps: 8, decay_steps: 3}", "3 and warmup_steps=8 are more than steps=10"),
        ("{lr: 1, schedule: slanted}", "optimizer.schedule: "),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(tmp_path: Path, optimizer: str, message: str) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    with pytest.raises(InputError, match=message):
        load(PretrainRecipe, path, [f"optimizer={optimizer}"])


def test_a_plateau_is_that_of_a_validation(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "r.yaml", **SEED_RECIPE)
    with pytest.raises(InputError, match="optimizer.plateau: .* name them in validation"):
        load(PretrainRecipe, path, ["optimizer.plateau={}"])
    plateau = ["optimizer.plateau.patience=2", "validation={shards: x, every: 5}"]
    keys = load(PretrainRecipe, path, plateau).optimizer.plateau
    assert keys is not None
    assert (keys.factor, keys.patience) == (0.4, 2)
    for wrong in ("factor=0.0", "factor=1.0", "patience=-1"):
        with pytest.raises(InputError, match=f"optimizer.plateau.{wrong.split('=')[0]}: "):
            load(PretrainRecipe, path, [*plateau, f"optimizer.plateau.{wrong}"])


def test_hinge_without_negatives_is_an_impossible_combination(tmp_path: Path) -> None:
    values = {"data": {"collection": "c"}, "init_from": "runs/x", "method": {"name": "siamese", "loss": "hinge"}}
    path = write_recipe(tmp_path / "r.yaml", **{k: v for k, v in {**SEED_RECIPE, **values}.items() if k != "trunk"})
    with pytest.raises(InputError, match="set method.hard_negatives, .* or method.negatives_per_query"):
        load(FinetuneRecipe, path)


def test_a_batch_without_another_document_is_refused_where_it_has_the_negatives(tmp_path: Path) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k != "trunk"}
    values |= {"data": {"collection": "c"}, "init_from": "runs/x", "method": {"name": "siamese"}}
    path = write_recipe(tmp_path / "r.yaml", **values)
    step, one = "method.negatives=step", ["batch.size=1", "batch.micro=1"]
    words = "batch.{}=1 leaves no other document to compare a query with: set it to 2 or more, or draw negatives"
    for key, wrong in {
        "micro": ["batch.size=8", "batch.micro=1"],
        "size": [step, *one],
        "micro ": [step, "batch.size=8", "batch.micro=1", "validation={split: dev, every: 5}"],
    }.items():
        with pytest.raises(InputError, match=words.format(key.strip())):
            load(FinetuneRecipe, path, wrong)
    load(FinetuneRecipe, path, [step, "batch.size=8", "batch.micro=1"])
    load(FinetuneRecipe, path, [*one, "method.negatives_per_query=1"])


@pytest.mark.parametrize("name", ["siamese", "colbert"])
@pytest.mark.parametrize("negatives", [{}, {"negatives": "micro_batch"}, {"negatives": "step"}])
@pytest.mark.parametrize("loss", ["kl", "margin_mse", "binary", "hinge", {"kl": 1.0, "softmax": 0.5}])
def test_a_saved_recipe_has_the_methods_of_its_sources(
    tmp_path: Path, name: str, negatives: dict[str, Any], loss: object
) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k not in ("trunk", "data", "method", "batch")}
    sources: dict[str, dict[str, Any]] = {"a": {"collection": "a", "weight": 1}}
    sources["s"] = {"collection": "b", "weight": 1, "loss": loss}
    if loss in ("binary", "hinge"):
        sources["s"]["negatives_per_query"] = 1
    per = "step" if "step" in negatives.values() else "micro_batch"
    values |= {
        "init_from": "runs/x",
        "data": {"mix": sources, "one_source_per": per},
        "method": {"name": name, **negatives},
    }
    recipe = load(FinetuneRecipe, write_recipe(tmp_path / "r.yaml", **values, batch={"size": 8, "micro": 4}))
    saved = write_recipe(tmp_path / "saved.yaml", **complete(recipe))
    assert load(FinetuneRecipe, saved).methods == recipe.methods
    ours = "own" if "softmax" not in loss else negatives.get("negatives", "micro_batch")  # type: ignore[operator]
    in_batch = [method.model_dump()["negatives"] != "own" for method in recipe.methods]
    assert in_batch == [True, ours != "own"]


def test_what_is_wrong_in_a_source_is_named_by_its_keys(tmp_path: Path) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k not in ("trunk", "data")}
    path = write_recipe(tmp_path / "r.yaml", **values, init_from="runs/x")
    for loss, words in {
        "softmx": r"data\.mix\.b\.loss: Input should be .*, not 'softmx'$",
        "{softmax: 0, kl: 1}": r"data\.mix\.b\.loss\.softmax: .*greater than 0, not 0$",
    }.items():
        mix = f"data.mix={{a: {{collection: a, weight: 1}}, b: {{collection: b, weight: 1, loss: {loss}}}}}"
        with pytest.raises(InputError, match=words):
            load(FinetuneRecipe, path, ["method={name: siamese}", mix])


def test_an_empty_metric_is_no_metric(tmp_path: Path) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k not in ("trunk", "data")}
    path = write_recipe(tmp_path / "r.yaml", **values, init_from="runs/x")
    more = ["method={name: siamese}", "data.collection=c", "checkpoint.keep_best=''"]
    with pytest.raises(InputError, match=r"checkpoint\.keep_best: "):
        load(FinetuneRecipe, path, more)


def test_names_and_temperatures_of_a_mix(tmp_path: Path) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k not in ("trunk", "data")}
    path = write_recipe(tmp_path / "r.yaml", **values, init_from="runs/x")
    siamese, two = "method={name: siamese}", "data.mix={a: {collection: a}, b: {collection: b}}"
    for changes, words in {
        ("data.mix={'..': {collection: a, weight: 1}}",): "'..' is no name of a source: use letters",
        (
            "data.mix={a: {collection: a, weight: 1}, a/b: {collection: b, weight: 1}}",
        ): "'a/b' is no name of a source: use letters",
        (two, "data.mix_temperature=0.001"): "data.mix_temperature: .*greater than or equal to 0.1",
        ("data.collection=c", "data.mix_temperature=3"): "data.mix_temperature needs data.mix: remove it",
    }.items():
        with pytest.raises(InputError, match=words):
            load(FinetuneRecipe, path, [siamese, *changes])
    load(FinetuneRecipe, path, [siamese, two, "data.mix_temperature=3"])


def test_a_plateau_does_not_mind_terms_without_weight(tmp_path: Path) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k not in ("trunk", "data")}
    path = write_recipe(tmp_path / "r.yaml", **values, init_from="runs/x")
    mix = "data.mix={a: {collection: a, weight: 1, ignore_above: 0.1}, b: {collection: b, weight: 1}}"
    more = ["method={name: siamese}", mix, "validation={split: dev, every: 5}", "optimizer.plateau={}"]
    assert load(FinetuneRecipe, path, more).optimizer.plateau


@pytest.mark.parametrize("length", ["max_query_tokens", "max_document_tokens"])
def test_a_text_has_room_for_a_word(tmp_path: Path, length: str) -> None:
    values = {k: v for k, v in SEED_RECIPE.items() if k != "trunk"}
    values |= {"data": {"collection": "c"}, "init_from": "runs/x", "method": {"name": "siamese", length: 2}}
    with pytest.raises(InputError, match=f"method.{length}: .*greater than or equal to 3, not 2"):
        load(FinetuneRecipe, write_recipe(tmp_path / "r.yaml", **values))


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.name)
def test_every_recipe_of_the_project_is_valid(path: Path) -> None:
    recipe = load(kind_of(read(path)), path)
    assert recipe.batch.micro_batches % 2 == 0


def test_the_base_recipe_is_that_of_the_paper() -> None:
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
