"""The communication model against DeepSpeed's actual calls."""

import json
from pathlib import Path

import pytest

from deepsiam.trainer.cluster.planning.communication import Kind, Zero, collectives
from deepsiam.trainer.cluster.planning.compute import count
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests import toy
from tests.trainer.cluster.planning.recorded import Call, record

FEW = 16  # up to so many elements, an all-reduce costs only latency
STAGES = {
    "1": {"stage": 1, "reduce_bucket_size": 20_000},
    "2": {"stage": 2, "reduce_bucket_size": 20_000},
    "3": {"stage": 3, "reduce_bucket_size": 20_000, "stage3_param_persistence_threshold": 100},
    "3, gathered twice": {
        "stage": 3,
        "stage3_param_persistence_threshold": 10,
        "stage3_max_reuse_distance": 20_000,
        "stage3_prefetch_bucket_size": 1_000,
        "stage3_max_live_parameters": 20_000,
    },
    "1 in bf16": {"stage": 1},
    "3 in bf16": {"stage": 3},
    "1 in bf16, summed in fp32": {"stage": 1},
    "2 in bf16, summed in fp32": {"stage": 2, "reduce_bucket_size": 20_000},
    "3 in bf16, summed in fp32": {"stage": 3},
}
BF16 = {"bf16": {"enabled": True}}
IN_FP32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}


@pytest.fixture(scope="module")
def recorded(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[PretrainRecipe, list[Call]]]:
    """A recipe and its calls in one step, by ZeRO stage: two ranks with two micro-batches each."""
    folder = tmp_path_factory.mktemp("recorded")
    changes = ["steps=4", "log_every=100", "checkpoint.every=100", "batch.micro=2"]
    runs = []
    for number, (name, zero) in enumerate(STAGES.items()):
        config = {
            "zero_optimization": zero,
            **(BF16 if "in bf16" in name else {}),
            **(IN_FP32 if "summed" in name else {}),
        }
        (folder / f"{number}.json").write_text(json.dumps(config))
        recipe = toy.seed_recipe(folder / f"{number}.yaml", shards, deepspeed=str(folder / f"{number}.json"))
        runs.append([recipe, *changes])
    calls = record(2, runs, folder)
    recipes = [load(PretrainRecipe, Path(str(run[0])), changes) for run in runs]
    return dict(zip(STAGES, zip(recipes, calls, strict=True), strict=True))


def planned(recipe: PretrainRecipe, kind: Kind) -> tuple[float, int]:
    """The bytes of large tensors and the number of calls that the model predicts for a kind of call."""
    zero = Zero.from_config(ds_config.load(recipe.deepspeed)[1])
    step = [one for one in collectives(count(recipe, 300).trained, zero, 2) if one.kind == kind]
    return sum(one.size * one.rounds for one in step), sum(one.calls * one.rounds for one in step)


def called(calls: list[Call], kind: Kind) -> tuple[int, int]:
    of_kind = [(numbers, width) for name, numbers, width in calls if name == kind]
    return sum(numbers * width for numbers, width in of_kind if numbers > FEW), len(of_kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STAGES if "twice" not in name])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_what_deepspeed_sends_is_as_planned(
    recorded: dict[str, tuple[PretrainRecipe, list[Call]]], name: str, kind: Kind
) -> None:
    recipe, calls = recorded[name]
    (size, number), (real_size, real_number) = planned(recipe, kind), called(calls, kind)
    assert size <= real_size <= 1.01 * size  # DeepSpeed pads the last parts to full size
    # how prefetching splits the gathers is not modelled: it affects only latency
    assert real_number == number or (kind == "all_gather" and number < real_number < number + 4)


@pytest.mark.slow
def test_stage_3_gathers_again_about_what_is_planned(recorded: dict[str, tuple[PretrainRecipe, list[Call]]]) -> None:
    recipe, calls = recorded["3, gathered twice"]
    size, real = planned(recipe, "all_gather")[0], called(calls, "all_gather")[0]
    once = 2 * 4 * sum(count(recipe, 300).trained)
    assert 1.1 * once < real < 1.01 * size
    assert real > 0.75 * size
