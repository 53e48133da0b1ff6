"""The keys of recipes: their limits, combinations that cannot work, and the recipes of the project."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.adapters import Adapters
from deepsiam.trainer.training.data.order import dropout_seed
from deepsiam.trainer.training.recipe.data_keys import on_source, with_source_keys
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import load, read
from deepsiam.trainer.training.run.job import complete
from deepsiam.trainer.training.run.watchdog import Watchdog
from tests.toy import ROOT, SEED_RECIPE, write_recipe

TUNED = {key: value for key, value in SEED_RECIPE.items() if key not in ("trunk", "data", "method")}


def pretrain(folder: Path, *overrides: str) -> PretrainRecipe:
    """The recipe of SEED with overrides."""
    return load(PretrainRecipe, write_recipe(folder / "r.yaml", **SEED_RECIPE), overrides)


def finetune(folder: Path, *overrides: str, data: str = "{collection: c}", method: str = "") -> FinetuneRecipe:
    """A recipe that fine-tunes a siamese network from a run."""
    path = write_recipe(folder / "r.yaml", **TUNED, init_from="runs/x")
    return load(FinetuneRecipe, path, [f"method={{name: siamese, {method}}}", f"data={data}", *overrides])


def test_the_largest_numbers_are_accepted(tmp_path: Path) -> None:
    recipe = pretrain(tmp_path, f"seed={2**63 - 1}", f"faults.hang_seconds={threading.TIMEOUT_MAX}")
    dropout_seed(recipe.seed, 0)
    with Watchdog(recipe.faults.hang_seconds, rank=0):
        time.sleep(0.1)  # a longer timeout would end the watchdog's thread at once


@pytest.mark.parametrize("value", ["all", "all_but_embeddings", 0, 3])
def test_what_is_trained_is_named_or_counted(tmp_path: Path, value: str | int) -> None:
    assert pretrain(tmp_path).optimizer.train == "all"
    assert pretrain(tmp_path, f"optimizer.train={value}").optimizer.train == value


LORA = "optimizer.train={lora: {rank: 4, targets: [query]}}"
STARTED = ("trunk=null", "init_from=runs/start")
VALIDATED = ("validation={shards: x, every: 5}", "optimizer.plateau.patience=2")


def test_adapters_and_plateaus_are_keys_with_defaults(tmp_path: Path) -> None:
    trained = pretrain(tmp_path, *STARTED, LORA).optimizer.train
    assert isinstance(trained, Adapters)
    assert trained.lora.model_dump() == {"rank": 4, "alpha": 32, "dropout": 0.05, "targets": ["query"]}
    keys = pretrain(tmp_path, *VALIDATED).optimizer.plateau
    assert keys is not None
    assert (keys.factor, keys.patience) == (0.4, 2)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        *(([f"optimizer.train={value}"], "optimizer.train: ") for value in ("some", "-1", "true", "1.0", "null")),
        *(
            ([*STARTED, f"optimizer.train={{lora: {lora}}}"], f"optimizer.train.lora{words}")
            for lora, words in [
                ("{rank: 0}", ".rank: input should be greater than 0, not 0"),
                ("{dropout: 1.0}", ".dropout: input should be less than 1, not 1.0"),
                ("{targets: []}", ".targets: list should have at least 1 item"),
                ("{ranks: 4}", r".ranks: unknown key; did you mean optimizer.train.lora.rank\?"),
                ("4", ": input should be a valid dictionary"),
            ]
        ),
        ([*STARTED, "optimizer.train={lor: {}}"], "optimizer.train.lora: missing; optimizer.train.lor: unknown key"),
        ([LORA], "optimizer.train: adapters leave .* name a trained encoder in init_from"),
        (["optimizer={lr: 1, schedule: wsd}"], "optimizer.decay_steps: .*: set how many"),
        (["optimizer={lr: 1, decay_steps: 2}"], "optimizer.decay_steps: .*: set it to 0 for schedule=linear"),
        (
            ["optimizer={lr: 1, schedule: wsd, warmup_steps: 8, decay_steps: 3}"],
            "optimizer.decay_steps: 3 and warmup_steps=8 are more than steps=10",
        ),
        (["optimizer={lr: 1, schedule: slanted}"], "optimizer.schedule: "),
        (["optimizer.plateau={}"], "optimizer.plateau: .* name them in validation"),
        ([*VALIDATED, "optimizer.plateau.factor=0.0"], "optimizer.plateau.factor: "),
        ([*VALIDATED, "optimizer.plateau.factor=1.0"], "optimizer.plateau.factor: "),
        ([*VALIDATED, "optimizer.plateau.patience=-1"], "optimizer.plateau.patience: "),
    ],
)
def test_a_pre_training_that_cannot_work_is_refused(tmp_path: Path, overrides: list[str], words: str) -> None:
    with pytest.raises(InputError, match=rf"^\S+: {words}"):
        pretrain(tmp_path, *overrides)


STEP, ONE = "method.negatives=step", ["batch.size=1", "batch.micro=1"]
ALONE = "batch.{}=1 leaves no other document to compare a query with: set it to 2 or more, or draw negatives"
MIX = "{{mix: {{a: {{collection: a{}}}, {}: {{collection: b{}}}}}}}".format


@pytest.mark.parametrize(
    ("overrides", "changes", "words"),
    [
        ([LORA, "random_weights=true"], {}, "optimizer.train: adapters leave .* name a trained encoder in init_from"),
        ([], {"method": "loss: hinge"}, "set method.hard_negatives, .* or method.negatives_per_query"),
        (["batch.micro=1"], {}, ALONE.format("micro")),
        ([STEP, *ONE], {}, ALONE.format("size")),
        ([STEP, "batch.micro=1", "validation={split: dev, every: 5}"], {}, ALONE.format("micro")),
        (["checkpoint.keep_best=''"], {}, r"checkpoint\.keep_best: "),
        ([], {"method": "max_query_tokens: 2"}, "method.max_query_tokens: .*greater than or equal to 3, not 2"),
        ([], {"method": "max_document_tokens: 2"}, "method.max_document_tokens: .*greater than or equal to 3, not 2"),
        (
            [],
            {"data": MIX(", weight: 1", "b", ", weight: 1, loss: softmx")},
            r"mix\.b\.loss: Input should be .*, not 'softmx'$",
        ),
        (
            [],
            {"data": MIX(", weight: 1", "b", ", weight: 1, loss: {softmax: 0, kl: 1}")},
            r"data\.mix\.b\.loss\.softmax: .*greater than 0, not 0$",
        ),
        ([], {"data": MIX(", weight: 1", "'..'", ", weight: 1")}, "'..' is no name of a source: use letters"),
        ([], {"data": MIX(", weight: 1", "a/b", ", weight: 1")}, "'a/b' is no name of a source: use letters"),
        (["data.mix_temperature=0.001"], {"data": MIX("", "b", "")}, "mix_temperature: .*greater than or equal to 0.1"),
        (["data.mix_temperature=3"], {}, "data.mix_temperature needs data.mix: remove it"),
    ],
)
def test_a_fine_tuning_that_cannot_work_is_refused(
    tmp_path: Path, overrides: list[str], changes: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        finetune(tmp_path, *overrides, **changes)


def test_a_batch_of_one_needs_negatives_from_elsewhere(tmp_path: Path) -> None:
    finetune(tmp_path, STEP, "batch.micro=1")
    finetune(tmp_path, *ONE, "method.negatives_per_query=1")


def test_a_temperature_takes_the_place_of_weights(tmp_path: Path) -> None:
    assert finetune(tmp_path, "data.mix_temperature=3", data=MIX("", "b", "")).data.mix_temperature == 3


def test_a_plateau_does_not_mind_terms_without_weight(tmp_path: Path) -> None:
    mix = MIX(", weight: 1, ignore_above: 0.1", "b", ", weight: 1")
    more = ("validation={split: dev, every: 5}", "optimizer.plateau={}")
    assert finetune(tmp_path, *more, data=mix).optimizer.plateau


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


def test_a_message_on_a_source_of_a_mix_names_its_own_keys() -> None:
    binary = "method.loss=binary: every pair of split train is relevant: draw negatives (method.negatives_per_query)"
    named = (
        "data.mix.a b.loss=binary: every pair of split train is relevant: draw negatives (data.mix.a b.negatives_per_"
    )
    assert on_source("a b", binary).startswith(named)
    assert on_source("", binary) == with_source_keys("", binary) == binary
    assert on_source("a", "set method.hard_negatives") == "data.mix.a: set data.mix.a.hard_negatives"
    assert on_source("a", "method.classes: 3") == "data.mix.a: method.classes: 3"  # no source has one of its own


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
