"""fp16 with dynamic loss scaling, on two ranks under every ZeRO stage."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepsiam.trainer.training.checkpoints import checkpoint
from tests import toy
from tests.trainer.many_runs import copy_half_way, ds_config, train

pytestmark = pytest.mark.slow  # real processes, about ten seconds each

STAGES = (1, 2, 3) if toy.FULL_TESTS else (1, 3)  # DeepSpeed has one optimizer for stages 1 and 2
POWER = 20  # exponent of the initial loss scale: so high that steps overflow and are skipped
STEPS = 12  # the scale settles in the first half: on other numbers of ranks, rounding may cause or prevent an overflow


@pytest.fixture(scope="module")
def runs(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs STAGE, and STAGE-same and STAGE-other, resumed half-way on two ranks and on one rank."""
    folder = tmp_path_factory.mktemp("fp16")
    recipe = toy.seed_recipe(folder / "run.yaml", shards, steps=STEPS, checkpoint={"every": STEPS // 2})
    commands = {stage: [recipe, f"deepspeed={ds_config(folder, f'zero{stage}_fp16', POWER)}"] for stage in STAGES}
    train(2, [[*run, f"run={folder}/{stage}"] for stage, run in commands.items()], folder)
    for ranks, name in ((2, "same"), (1, "other")):
        for stage in STAGES:
            copy_half_way(folder / str(stage), STEPS // 2, folder / f"{stage}-{name}")
        train(ranks, [[*run, f"run={folder}/{stage}-{name}"] for stage, run in commands.items()], folder)
    return folder


@pytest.mark.parametrize("stage", STAGES)
def test_the_loss_scale_is_halved_until_nothing_overflows_and_the_model_learns(runs: Path, stage: int) -> None:
    scale, skipped, loss = (toy.scalars(runs / str(stage), tag) for tag in ("loss_scale", "skipped_steps", "loss/mlm"))
    assert scale[1] == 2.0**POWER
    assert 0 < skipped[STEPS] == skipped[STEPS // 2] < STEPS // 2
    assert scale[STEPS] == 2.0 ** (POWER - skipped[STEPS] + 1)  # hysteresis 2: the first overflow does not lower it
    assert loss[STEPS] < loss[1]


@pytest.mark.parametrize("stage", STAGES)
def test_a_resumed_run_is_the_same_to_the_bit(runs: Path, stage: int) -> None:
    undisturbed, resumed = runs / str(stage), runs / f"{stage}-same"
    for tag in ("loss/mlm", "loss/decoder", "grad_norm", "loss_scale"):
        expected = {step: value for step, value in toy.scalars(undisturbed, tag).items() if step > STEPS // 2}
        assert toy.scalars(resumed, tag) == expected
    first, second = (load_file(checkpoint.folder(run, STEPS) / "weights.safetensors") for run in (undisturbed, resumed))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_overflow_in_every_step_ends_the_run(shards: Path, tmp_path: Path) -> None:
    file = ds_config(tmp_path, "zero1_fp16", 60)
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "fp16": {**values["fp16"], "min_loss_scale": 2**60}}))
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=60, deepspeed=str(file))
    (tmp_path / "runs.json").write_text(json.dumps([[str(recipe)]]))
    done = toy.launch(2, "tests.trainer.many_runs", tmp_path / "runs.json")
    assert "SharedError: fp16 overflow skipped 41 steps in a row: lower optimizer.lr" in done.stderr
    assert "loss scale already at minimum" not in done.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_it_resumes_with_another_number_of_ranks(runs: Path, stage: int) -> None:
    expected, seen = (toy.scalars(run, "loss/mlm") for run in (runs / str(stage), runs / f"{stage}-other"))
    assert sorted(seen) == list(range(STEPS // 2 + 1, STEPS + 1))
    assert all(loss == pytest.approx(expected[step], rel=1e-3) for step, loss in seen.items())
