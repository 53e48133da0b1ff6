"""The keys of recipes: limits, what cannot work together; rates by step, plateaus and the best of the probes."""

import dataclasses
import json
import math
import shlex
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.adapters import Adapters
from deepsiam.trainer.training.data.order import dropout_seed
from deepsiam.trainer.training.recipe.data_keys import on_source, with_source_keys
from deepsiam.trainer.training.recipe.gains import Best, Plateau
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, OptimizerConfig, PretrainRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import load, read
from deepsiam.trainer.training.run.job import complete
from deepsiam.trainer.training.run.watchdog import Watchdog
from tests.toy import ROOT, SEED_RECIPE, write_recipe

TUNED = {key: value for key, value in SEED_RECIPE.items() if key not in ("trunk", "data", "method")}


def pretrain(folder: Path, *overrides: str) -> PretrainRecipe:
    """The recipe of SEED with overrides."""
    return load(PretrainRecipe, write_recipe(folder / "r.yaml", **SEED_RECIPE), overrides)


def finetune(folder: Path, *overrides: str) -> FinetuneRecipe:
    """A recipe that fine-tunes a siamese network from a run."""
    path = write_recipe(folder / "r.yaml", **TUNED, init_from="runs/x")
    return load(FinetuneRecipe, path, ["method={name: siamese}", "data={collection: c}", *overrides])


def test_the_largest_numbers_are_accepted(tmp_path: Path) -> None:
    recipe = pretrain(tmp_path, f"seed={2**63 - 1}", f"faults.hang_seconds={threading.TIMEOUT_MAX}")
    dropout_seed(recipe.seed, 0)
    with Watchdog(recipe.faults.hang_seconds, rank=0):
        time.sleep(0.1)  # a longer timeout would end the watchdog's thread at once


@pytest.mark.parametrize("value", ["all", "all_but_embeddings", 0, 3])
def test_what_is_trained_is_named_or_counted(tmp_path: Path, value: str | int) -> None:
    assert pretrain(tmp_path).optimizer.train == "all"
    assert pretrain(tmp_path, f"optimizer.train={value}").optimizer.train == value


LORA = "'optimizer.train={lora: {rank: 4, targets: [query]}}'"
STARTED = "trunk=null init_from=runs/start"
VALIDATED = "'validation={shards: x, every: 5}' optimizer.plateau.patience=2"


def test_adapters_and_plateaus_are_keys_with_defaults(tmp_path: Path) -> None:
    trained = pretrain(tmp_path, *shlex.split(f"{STARTED} {LORA}")).optimizer.train
    assert isinstance(trained, Adapters)
    assert trained.lora.model_dump() == {"rank": 4, "alpha": 32, "dropout": 0.05, "targets": ["query"]}
    keys = pretrain(tmp_path, *shlex.split(VALIDATED)).optimizer.plateau
    assert keys is not None
    assert (keys.factor, keys.patience) == (0.4, 2)


ONE = "batch.size=1 batch.micro=1"
ALONE = "batch.{}=1 leaves no other document to compare a query with: set it to 2 or more, or draw negatives"
MIX = "'data={{mix: {{a: {{collection: a{}}}, {}: {{collection: b{}}}}}}}'".format
PRETRAIN = [  # overrides of the recipe of SEED, and what is said after the name of its file
    *((f"optimizer.train={value}", "optimizer.train: ") for value in ("some", "-1", "true", "1.0", "null")),
    *(
        (f"{STARTED} 'optimizer.train={{lora: {lora}}}'", f"optimizer.train.lora{words}")
        for lora, words in [
            ("{rank: 0}", ".rank: input should be greater than 0, not 0"),
            ("{dropout: 1.0}", ".dropout: input should be less than 1, not 1.0"),
            ("{targets: []}", ".targets: list should have at least 1 item"),
            ("{ranks: 4}", r".ranks: unknown key; did you mean optimizer.train.lora.rank\?"),
            ("4", ": input should be a valid dictionary"),
        ]
    ),
    (f"{STARTED} 'optimizer.train={{lor: {{}}}}'", "optimizer.train.lora: missing; optimizer.train.lor: unknown key"),
    ("trunk=null", "trunk: describe a new encoder there, or name one in init_from, and not both"),
    ("'trunk={}' init_from=x", "trunk: describe a new encoder there, or name one in init_from, and not both"),
    (LORA, "optimizer.train: adapters leave .* name a trained encoder in init_from"),
    ("'optimizer={lr: 1, schedule: wsd}'", "optimizer.decay_steps: .*: set how many"),
    ("'optimizer={lr: 1, decay_steps: 2}'", "optimizer.decay_steps: .*: set it to 0 for schedule=linear"),
    (
        "'optimizer={lr: 1, schedule: wsd, warmup_steps: 8, decay_steps: 3}'",
        "optimizer.decay_steps: 3 and warmup_steps=8 are more than steps=10",
    ),
    ("'optimizer={lr: 1, schedule: slanted}'", "optimizer.schedule: "),
    ("optimizer.plateau={}", "optimizer.plateau: .* name them in validation"),
    (f"{VALIDATED} optimizer.plateau.factor=0.0", "optimizer.plateau.factor: "),
    (f"{VALIDATED} optimizer.plateau.factor=1.0", "optimizer.plateau.factor: "),
    (f"{VALIDATED} optimizer.plateau.patience=-1", "optimizer.plateau.patience: "),
]
FINETUNE = [  # the same of a fine-tuning, and what is said somewhere
    (f"{LORA} random_weights=true", "optimizer.train: adapters leave .* name a trained encoder in init_from"),
    ("init_from=null", "trunk: name a trained encoder in init_from, or describe a new one there"),
    ("'trunk={}' init_from=x", "trunk: name a trained encoder in init_from, or describe a new one there"),
    ("init_from=null 'trunk={}' bidirectional=true", "bidirectional needs a decoder in .* set trunk.is_causal=false"),
    ("method.loss=hinge", "set method.hard_negatives, .* or method.negatives_per_query"),
    ("batch.micro=1", ALONE.format("micro")),
    (f"method.negatives=step {ONE}", ALONE.format("size")),
    ("method.negatives=step batch.micro=1 'validation={split: dev, every: 5}'", ALONE.format("micro")),
    ("\"checkpoint.keep_best=''\"", r"checkpoint\.keep_best: "),
    ("method.max_query_tokens=2", "method.max_query_tokens: .*greater than or equal to 3, not 2"),
    ("method.max_document_tokens=2", "method.max_document_tokens: .*greater than or equal to 3, not 2"),
    (MIX(", weight: 1", "b", ", weight: 1, loss: softmx"), r"mix\.b\.loss: Input should be .*, not 'softmx'$"),
    (
        MIX(", weight: 1", "b", ", weight: 1, loss: {softmax: 0, kl: 1}"),
        r"data\.mix\.b\.loss\.softmax: .*than 0, not 0$",
    ),
    (MIX(", weight: 1", '".."', ", weight: 1"), "'..' is no name of a source: use letters"),
    (MIX(", weight: 1", "a/b", ", weight: 1"), "'a/b' is no name of a source: use letters"),
    (f"{MIX('', 'b', '')} data.mix_temperature=0.001", "mix_temperature: .*greater than or equal to 0.1"),
    ("data.mix_temperature=3", "data.mix_temperature needs data.mix: remove it"),
]


@pytest.mark.parametrize(
    ("recipe", "typed", "words"),
    [*((pretrain, typed, rf"^\S+: {words}") for typed, words in PRETRAIN), *((finetune, *row) for row in FINETUNE)],
)
def test_what_cannot_work_is_refused(tmp_path: Path, recipe: Callable[..., object], typed: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        recipe(tmp_path, *shlex.split(typed))


def test_what_is_close_to_it_is_not(tmp_path: Path) -> None:
    finetune(tmp_path, "method.negatives=step", "batch.micro=1")
    finetune(tmp_path, *ONE.split(), "method.negatives_per_query=1")
    weighed_by_size = finetune(tmp_path, *shlex.split(MIX("", "b", "")), "data.mix_temperature=3")
    assert weighed_by_size.data.mix_temperature == 3
    of_terms = MIX(", weight: 1, ignore_above: 0.1", "b", ", weight: 1")  # one source has a term without weight
    plateau = ("validation={split: dev, every: 5}", "optimizer.plateau={}", *shlex.split(of_terms))
    assert finetune(tmp_path, *plateau).optimizer.plateau


@pytest.mark.parametrize("name", ["siamese", "colbert"])
@pytest.mark.parametrize("negatives", [{}, {"negatives": "micro_batch"}, {"negatives": "step"}])
@pytest.mark.parametrize("loss", ["kl", "margin_mse", "binary", "hinge", {"kl": 1.0, "softmax": 0.5}])
def test_a_saved_recipe_has_the_methods_of_its_sources(
    tmp_path: Path, name: str, negatives: dict[str, Any], loss: object
) -> None:
    source: dict[str, Any] = {"collection": "b", "weight": 1, "loss": loss}
    if loss in ("binary", "hinge"):
        source["negatives_per_query"] = 1
    values: dict[str, Any] = {**TUNED, "init_from": "runs/x", "method": {"name": name, **negatives}}
    per = "step" if "step" in negatives.values() else "micro_batch"
    values["data"] = {"mix": {"a": {"collection": "a", "weight": 1}, "s": source}, "one_source_per": per}
    recipe = load(FinetuneRecipe, write_recipe(tmp_path / "r.yaml", **values))
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


def theirs(losses: list[float], factor: float, patience: int) -> list[float]:
    """The rates that PyTorch's class sets after each loss, from a rate of 1 and without its minimum change (`eps`)."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, "min", factor=factor, patience=patience, threshold=1e-4, eps=0.0)
    rates = []
    for loss in losses:
        scheduler.step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def ours(losses: list[float], factor: float, patience: int) -> list[float]:
    state, rates = Plateau(), []
    for loss in losses:
        state = state.after(loss, factor=factor, patience=patience)
        state = Plateau(**json.loads(json.dumps(dataclasses.asdict(state))))  # saved and loaded as in a checkpoint
        rates.append(state.scale)
    return rates


NEAR = st.integers(-20, 20).map(lambda n: 2.0 * (1 + n * 2e-5))  # on both sides of the threshold
LOSSES = st.lists(NEAR | st.floats(0.0, 10.0) | st.just(float("nan")), max_size=30)


@given(LOSSES, st.sampled_from([0.4, 0.5, 0.9]), st.integers(0, 3))
def test_it_is_that_of_pytorch(losses: list[float], factor: float, patience: int) -> None:
    assert ours(losses, factor, patience) == theirs(losses, factor, patience)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_the_best_is_the_first_highest_and_the_count_is_of_those_since(values: list[int]) -> None:
    best = Best()
    for step, value in enumerate(values):
        best = best.after(step, value / 5, "ndcg@10 of dev")
    at = values.index(max(values))
    assert (best.value, best.step, best.bad) == (max(values) / 5, at, len(values) - 1 - at)


def test_which_probes_count_as_ones_without_a_gain() -> None:
    once = Best().after(0, 0.5, "a").after(10, 0.4, "a")
    assert once.bad == 1
    assert once.after(10, 0.4, "a") == once.after(10, 0.6, "a") == once  # repeated by a resumed run
    last = Best().after(0, 0.5, "a").after(5, 0.4, "a", is_extra=True)  # of the last step alone
    assert (last.value, last.bad, last.last) == (0.5, 0, 5)
    assert last.after(10, 0.4, "a").bad == 1
    better = last.after(15, 0.6, "a", is_extra=True)
    assert (better.value, better.step, better.bad) == (0.6, 15, 0)
    other = once.after(20, 0.1, "another measure")
    assert (other.value, other.step, other.bad) == (0.1, 20, 0)


def scheduled(count: int, steps: int, **keys: Any) -> list[float]:
    """The rates of the first steps of a run."""
    return [OptimizerConfig(**keys).rate(step, steps) for step in range(count)]


def test_warm_up_and_decay_are_linear() -> None:
    def rates(lr: float, warmup_steps: int, steps: int, count: int = 0, **keys: Any) -> Any:
        return pytest.approx(scheduled(count or steps, steps, lr=lr, warmup_steps=warmup_steps, **keys))

    assert rates(1.0, 4, 12) == [0.25, 0.5, 0.75, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert rates(1.0, 0, 2) == [1.0, 0.5]
    assert rates(2.0, 4, 6, schedule="constant") == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    wsd: dict[str, Any] = {"schedule": "wsd", "decay_steps": 4}
    assert rates(2.0, 2, 9, 10, **wsd) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0]
    # a longer run has the same rates until the shorter one decays
    assert rates(2.0, 2, 30, 7, **wsd) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("warmup_steps", [0, 1, 4])
def test_inverse_square_root_and_cosine_decay(warmup_steps: int) -> None:
    """Vaswani et al., 2017, section 5.3: min(1 / sqrt(n), n / w^1.5) at the n-th step, scaled to the peak."""
    keys: dict[str, Any] = {"lr": 3.0, "warmup_steps": warmup_steps, "steps": 12}
    # the decay does not depend on `steps`
    rates = scheduled(100, schedule="inverse_sqrt", **keys)
    w = max(1, warmup_steps)
    assert rates == pytest.approx([3 * math.sqrt(w) * min(n**-0.5, n * w**-1.5) for n in range(1, 101)])
    assert max(rates) == rates[w - 1] == 3.0
    rates = scheduled(13, schedule="cosine", **keys)
    assert rates[:warmup_steps] == pytest.approx([3 * n / warmup_steps for n in range(1, warmup_steps + 1)])
    decayed = np.linspace(0, math.pi, 13 - warmup_steps)
    assert rates[warmup_steps:] == pytest.approx(1.5 + 1.5 * np.cos(decayed), abs=1e-12)
