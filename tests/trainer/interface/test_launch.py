"""The command line of DeepSpeed's launcher, and how many ranks it starts."""

import sys
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.supervisor import Training
from deepsiam.trainer.interface import launch
from tests import toy

DEVICE = "deepsiam.trainer.training.engine.device"
START = [sys.executable, "-m", "deepspeed.launcher.runner", "-q"]


@pytest.mark.parametrize(
    ("on_cpu", "typed", "options", "words"),
    [
        (True, "r.yaml", "--num_accelerators 1", "r.yaml"),
        (False, "r.yaml", "", "r.yaml"),  # DeepSpeed takes every GPU
        (True, "--gpus 2 r.yaml a.b=1 --resume", "--num_accelerators 2", "r.yaml a.b=1 --resume"),
        (False, "r.yaml --find-lr c=2 --gpus 4", "--num_accelerators 4", "r.yaml c=2 --find-lr"),
        (True, "r.yaml -- --master_port 7 -i h", "--master_port 7 -i h --num_accelerators 1", "r.yaml"),
        (True, "r.yaml --hostfile HOSTS -- --no_ssh", "--no_ssh --hostfile HOSTS", "r.yaml"),
    ],
)
def test_it_is_the_launcher_s(
    on_cpu: bool, typed: str, options: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("h slots=1\n")
    monkeypatch.setattr(f"{DEVICE}.settle_on_cpu", lambda: on_cpu)
    made = launch.command("finetune", typed.replace("HOSTS", str(hosts)).split())
    expected = options.replace("HOSTS", str(hosts)).split()
    assert made == [*START, *expected, "--module", "deepsiam.trainer.finetune", *words.split()]


def test_without_gpus_deepspeed_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepsiam.trainer.training.engine import device

    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr(device, "unseen_gpus", lambda: "")
    monkeypatch.delenv(device.CHOICE, raising=False)
    assert device.settle_on_cpu()
    assert device.os.environ[device.CHOICE] == "cpu"
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.delenv(device.CHOICE)
    assert not device.settle_on_cpu()
    assert device.CHOICE not in device.os.environ
    monkeypatch.setattr(device, "unseen_gpus", lambda: "this host has GPUs")
    with pytest.raises(InputError, match="this host has GPUs; or set DS_ACCELERATOR=cpu"):
        device.settle_on_cpu()


def test_the_supervisor_takes_the_command(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    words = launch.launcher_command(["bin/deepsiam", "pretrain", str(recipe), "steps=3", "--gpus", "2"])
    training = Training.from_command(words)
    assert (training.run, training.steps) == (tmp_path / "run", 3)
    module = ["--module", "deepsiam.trainer.pretrain", str(recipe), "steps=3", "--resume"]
    assert training.command == [*START, "--num_accelerators", "2", *module]
    others = ["srun", "deepsiam", "pretrain"]
    assert launch.launcher_command(others) == others
