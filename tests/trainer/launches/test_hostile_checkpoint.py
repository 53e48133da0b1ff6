"""A checkpoint that someone else made: DeepSpeed's files in it can run no code, whatever its manifest vouches for."""

import json
import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine import plain_files
from tests import toy
from tests.trainer import many_runs
from tests.trainer.runs import vouch
from tests.trainer.training.engine.hostile_pickles import callers, plant

pytestmark = pytest.mark.slow  # real processes

STEP = 1
CONFIGS = {  # every kind of file that DeepSpeed writes
    "zero0": {"bf16": {"enabled": True}},
    "zero1": {"zero_optimization": {"stage": 1}},
    "zero2": {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
    "zero3": {"zero_optimization": {"stage": 3}},
    "zero1_fp16": {"zero_optimization": {"stage": 1}, "fp16": {"enabled": True, "initial_scale_power": 4}},
    "zero3_bf16": {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": True}},
}
KINDS = [(name, kind) for name in CONFIGS for kind in ("model", "optim") if (name, kind) != ("zero0", "optim")]


@pytest.fixture(scope="module")
def runs(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on 2 ranks for every configuration, each with one checkpoint."""
    folder = tmp_path_factory.mktemp("hostile")
    recipe = toy.seed_recipe(folder / "run.yaml", shards, steps=STEP, checkpoint={"every": STEP})
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    changes = [[f"run={folder}/{name}", f"deepspeed={folder}/{name}.json"] for name in CONFIGS]
    optimizers = ["adamw", "adamax"] * len(changes)
    many_runs.train(
        2, [[recipe, *of, f"optimizer.name={name}"] for of, name in zip(changes, optimizers, strict=False)], folder
    )
    return folder


def hostile_copy(runs: Path, name: str, kind: str, to: Path) -> tuple[Path, Path]:
    """Copy a run, plant code in the last of DeepSpeed's files of a kind, and let the manifest vouch for it."""
    shutil.copytree(runs / name, to / "run", ignore=shutil.ignore_patterns("tensorboard"))
    saved = checkpoint.folder(to / "run", STEP)
    file = sorted((saved / checkpoint.ENGINE).glob(f"*{kind}_states.pt"))[-1]
    plant(file, callers(to / "ran")["system"])
    vouch(saved)
    assert checkpoint.verify(saved) is None
    return saved, file


@pytest.mark.parametrize("name", CONFIGS)
def test_deepspeeds_own_files_pass(runs: Path, name: str) -> None:
    folder = checkpoint.folder(runs / name, STEP) / checkpoint.ENGINE
    assert list(folder.glob("*.pt"))
    plain_files.check(folder)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_file_is_checked_before_ranks_meet(runs: Path, tmp_path: Path, name: str, kind: str) -> None:
    saved, file = hostile_copy(runs, name, kind, tmp_path)
    with pytest.raises(InputError, match=rf"{file.name}: .*system, which could run code"):
        plain_files.check(saved / checkpoint.ENGINE)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "kind", "ranks"), [("zero1", "optim", 2), ("zero3", "model", 1), ("zero0", "model", 2)]
)
def test_resume_refuses_it_in_one_line(runs: Path, tmp_path: Path, name: str, kind: str, ranks: int) -> None:
    _, file = hostile_copy(runs, name, kind, tmp_path)
    changes = [f"run={tmp_path / 'run'}", f"deepspeed={runs}/{name}.json", "steps=4"]
    done = toy.launch(ranks, "trainer.pretrain", runs / "run.yaml", *changes, "--resume")
    assert done.returncode == 2
    assert done.stderr.startswith(f"trainer.pretrain: {file}: not a file of DeepSpeed's plain values")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["zero1", "zero3"])
def test_what_changes_after_the_check_is_refused_too(runs: Path, tmp_path: Path, name: str) -> None:
    """By every rank's load, and by the conversion for another number of ranks."""
    saved, file = hostile_copy(runs, name, "optim", tmp_path)
    with pytest.raises(InputError, match=rf"could not convert it: .*{file.name}: .*which could run code"):
        checkpoint._convert(saved / checkpoint.ENGINE, tmp_path / "universal" / "step")
    job = [runs / "run.yaml", f"run={tmp_path / 'run'}", f"deepspeed={runs}/{name}.json", "steps=4"]
    (tmp_path / "runs.json").write_text(json.dumps([list(map(str, job))]))
    done = toy.launch(2, "tests.trainer.many_runs", tmp_path / "runs.json")  # it does not check beforehand
    assert done.returncode
    assert f"{file}: not a file of DeepSpeed's plain values" in done.stderr
    assert not (tmp_path / "ran").exists()
