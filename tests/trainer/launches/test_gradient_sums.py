"""bf16 with gradients that are summed in fp32, on two ranks under every ZeRO stage."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.trainer.many_runs import copy_half_way, train

pytestmark = pytest.mark.slow  # real processes

STAGES = (1, 2, 3) if toy.FULL_TESTS else (1, 3)  # DeepSpeed has one optimizer for stages 1 and 2
STEPS = 6


def config(folder: Path, stage: int, *, older: bool = False) -> str:
    """Write the shipped configuration of a stage with sums in fp32; an `older` one sums in bf16."""
    values = json.loads((toy.ROOT / "ds_configs" / f"zero{stage}_bf16.json").read_text())
    in_fp32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    path = folder / f"zero{stage}{'-older' * older}.json"
    path.write_text(json.dumps(values if older else {**values, **in_fp32}))
    return f"deepspeed={path}"


@pytest.fixture(scope="module")
def runs(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs STAGE, STAGE-older, and STAGE-same, STAGE-other and STAGE-upgraded, resumed half-way."""
    folder = tmp_path_factory.mktemp("bf16")
    recipe = toy.seed_recipe(folder / "run.yaml", shards, steps=STEPS, checkpoint={"every": STEPS // 2})
    new = {f"{stage}": [recipe, config(folder, stage)] for stage in STAGES}
    older = {f"{stage}-older": [recipe, config(folder, stage, older=True)] for stage in STAGES}
    train(2, [[*run, f"run={folder}/{name}"] for name, run in {**new, **older}.items()], folder)
    for stage in STAGES:
        for source, name in ((f"{stage}", "same"), (f"{stage}", "other"), (f"{stage}-older", "upgraded")):
            copy_half_way(folder / source, STEPS // 2, folder / f"{stage}-{name}")
    for ranks, names in ((2, ("same", "upgraded")), (1, ("other",))):
        train(ranks, [[*new[f"{stage}"], f"run={folder}/{stage}-{name}"] for name in names for stage in STAGES], folder)
    return folder


@pytest.mark.parametrize("stage", STAGES)
def test_a_resumed_run_is_the_same_to_the_bit(runs: Path, stage: int) -> None:
    undisturbed, resumed = runs / str(stage), runs / f"{stage}-same"
    for tag in ("loss/mlm", "loss/decoder", "grad_norm"):
        expected = {step: value for step, value in toy.scalars(undisturbed, tag).items() if step > STEPS // 2}
        assert toy.scalars(resumed, tag) == expected
    first, second = (load_file(checkpoint.folder(run, STEPS) / "weights.safetensors") for run in (undisturbed, resumed))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_stage_tells_the_norm_of_the_whole_gradient(runs: Path) -> None:
    expected = toy.scalars(runs / "1-older", "grad_norm")
    for stage in STAGES:
        norms = toy.scalars(runs / str(stage), "grad_norm")
        assert [norms[step] for step in (1, 2)] == pytest.approx([expected[step] for step in (1, 2)], rel=0.02)


@pytest.mark.parametrize("name", ["other", "upgraded"])
@pytest.mark.parametrize("stage", STAGES)
def test_it_resumes_with_another_number_of_ranks_and_from_older_checkpoints(runs: Path, stage: int, name: str) -> None:
    source = f"{stage}-older" if name == "upgraded" else str(stage)
    expected, seen = (toy.scalars(runs / run, "loss/mlm") for run in (source, f"{stage}-{name}"))
    assert sorted(seen) == list(range(STEPS // 2 + 1, STEPS + 1))
    assert all(loss == pytest.approx(expected[step], rel=2e-3) for step, loss in seen.items())
