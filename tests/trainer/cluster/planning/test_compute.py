"""The operation count of a micro-batch: against the real model, and against a plain formula."""

import json
import resource
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.vocabulary import Vocabulary
from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.cluster.planning.compute import SPECIAL, count, made_up_batch, measured_speed, vocabulary_of
from deepsiam.trainer.training.recipe.build import build_model, trunk_of
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.flops import CPU_ATTENTION
from tests.toy import ROOT

WITHOUT_DROPOUT = ["trunk.hidden_dropout_prob=0.0", "trunk.attention_probs_dropout_prob=0.0"]


def recipe(name: str = "seed_small", *changes: str) -> PretrainRecipe:
    return load(PretrainRecipe, ROOT / "recipes" / f"{name}.yaml", changes)


def test_the_products_are_those_of_the_real_model() -> None:
    keys = recipe("seed_small", *WITHOUT_DROPOUT)
    work = count(keys, 500, torch.float32)  # as on the CPU: with padding
    assert keys.trunk is not None
    torch.manual_seed(0)
    model = build_model(keys.method, trunk_of({**keys.trunk, "vocab_size": 500, "pad_token_id": 0}, "trunk"))
    batch, _ = made_up_batch(keys.method, Vocabulary(500, **SPECIAL), keys.batch.micro)
    with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counter:
        sum(model(**{name: torch.from_numpy(array) for name, array in batch.arrays.items()}).values()).backward()
    assert work.flops * keys.batch.micro == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert work.trained == tuple(parameter.numel() for parameter in model.parameters())
    assert work.parameters == sum(work.trained)


def test_a_trunk_costs_six_operations_a_parameter_and_token() -> None:
    """Kaplan et al., 2020: 2 forward and 4 backward for each weight; attention adds 12 x layers x length x width."""
    narrow, deep = (count(recipe("mlm_base", f"trunk.num_hidden_layers={layers}"), 32768) for layers in (6, 12))
    weights = deep.parameters - narrow.parameters
    length, width = 504, 768  # sentences of 24 tokens fill 502 of 512; two special tokens
    expected = (6 * weights + 12 * 6 * length * width) * length
    assert deep.flops - narrow.flops == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("method", sorted(PRETRAINING))
def test_every_method_can_be_counted(method: str) -> None:
    work = count(recipe(f"{method}_small"), 4096)
    assert work.flops > 6 * work.tokens * 1e5
    assert sum(work.kernels.values()) > 50


def test_a_trunk_that_asks_about_its_data_can_be_counted() -> None:
    modern = count(recipe("demo_seed"), 4096)  # ModernBERT checks whether there is padding
    assert modern.flops > 6 * modern.tokens * 1e5


def test_a_billion_parameters_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    large = ["trunk.hidden_size=1792", "trunk.num_attention_heads=28", "trunk.num_hidden_layers=24"]
    work = count(recipe("seed_base", *large, "trunk.intermediate_size=7168", "batch.micro=1"), 32768)
    assert work.parameters > 1e9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def test_frozen_parameters_are_not_trained() -> None:
    work = count(recipe("mlm_small", "optimizer.train=1"), 4096)
    assert sum(work.trained) < work.parameters


def test_the_vocabulary_is_the_trunk_s_or_given() -> None:
    assert vocabulary_of(recipe("seed_base"), None) == 32768
    assert vocabulary_of(recipe("seed_small"), 500) == 500
    with pytest.raises(InputError, match="trunk.vocab_size"):
        vocabulary_of(recipe("seed_small", "trunk={model_type: bert}"), None)
    with pytest.raises(InputError, match="a vocabulary of 10 pieces has no words: give more than 10"):
        vocabulary_of(recipe(), 10)


@pytest.mark.parametrize("length", [8, 24, 40, 48, 50])
def test_short_inputs_have_made_up_text(length: int) -> None:
    keys = recipe("ict_small", f"method.max_tokens={length}")
    batch, _ = made_up_batch(keys.method, Vocabulary(64, **SPECIAL), 4)
    assert batch.arrays["passage_ids"].shape[0] == 4


def test_a_trunk_that_is_not_described_is_refused() -> None:
    with pytest.raises(InputError, match="^trunk: .*init_from"):
        count(recipe("seed_small", "trunk=null", "init_from=runs/x"), 500)


def results() -> Any:
    return json.loads((ROOT / "benchmarks" / "results" / "pretrain_step_cpu.json").read_text())


def test_a_measured_speed_is_products_a_token_times_tokens_a_second() -> None:
    cases = results()["cases"]
    last = [one for one in cases.values() if one["recipe"].startswith("seed")][-1]
    rate = last["rivals"]["deepsiam"]["tokens_per_second"]["median"]
    speed = measured_speed(results(), recipe(), None, "x.json")
    assert speed.flops == last["flops_per_token"] * rate
    assert speed.optimizer(10**9, 1) == 0
    first = cases["seed-demo"]
    named = measured_speed(results(), recipe(), "seed-demo", "x.json").flops
    assert named == first["flops_per_token"] * first["rivals"]["deepsiam"]["tokens_per_second"]["median"]


@pytest.mark.parametrize(
    ("content", "case", "message"),
    [
        (results(), "nothing", "x.json: no case 'nothing'; choose with --case: seed-demo, "),
        ({"cases": {}}, None, "x.json: no case of method seed"),
        ({"cases": {"a": {"recipe": "seed_base.yaml"}}}, None, "x.json: not a result of benchmarks.step"),
        ([], None, "x.json: not a result of benchmarks.step"),
    ],
)
def test_other_files_are_refused(content: Any, case: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        measured_speed(content, recipe(), case, "x.json")
