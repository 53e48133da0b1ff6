"""torchrun as the launcher: its ranks train the weights of DeepSpeed's launcher; bad input is one line."""

import subprocess
from pathlib import Path

import pytest

from tests import toy

pytestmark = pytest.mark.slow


def torchrun(*words: object) -> subprocess.CompletedProcess[str]:
    """Train by two ranks of torchrun, as its command does."""
    start = [
        toy.forked_python(),
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        toy.free_port(),
    ]
    command = [*start, "-m", "deepsiam.trainer.pretrain", *words]
    return subprocess.run([*map(str, command)], cwd=toy.ROOT, env=toy.environment(), capture_output=True, text=True)


def test_its_ranks_train_the_same_weights(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=4)
    by_torchrun = torchrun(recipe, f"run={tmp_path / 'torchrun'}")
    assert by_torchrun.returncode == 0, by_torchrun.stderr
    assert "2 x cpu" in by_torchrun.stdout
    done = toy.launch(2, "deepsiam.trainer.pretrain", recipe)
    assert done.returncode == 0, done.stderr
    file = Path("checkpoints", "step-00000004", "weights.safetensors")
    weights = [(tmp_path / run / file).read_bytes() for run in ("torchrun", "run")]
    assert weights[0] == weights[1]
    again = torchrun(recipe, f"run={tmp_path / 'torchrun'}")
    assert again.returncode
    assert again.stderr.count("contains a run (step-00000004): add --resume") == 1
