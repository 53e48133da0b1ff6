"""The command trainer.doctor: its table, JSON and exit code, on this host and through an ssh that runs here."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deepsiam.trainer.cluster.hosts.doctor import THIS_HOST, Cluster
from tests import toy
from tests.trainer.cluster.hosts import fake_ssh

CHECKS = ["hosts", "versions", "GPUs", "clocks", "run folder", "port", "layout", "recipe", "shards", "memory", "disk"]


def doctor(*arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    return toy.run("trainer.doctor", *arguments, "--master_port", toy.free_port(), **variables)


def found(*arguments: object, **variables: str) -> dict[str, dict[str, Any]]:
    """What a check of sound hosts finds."""
    done = doctor(*arguments, "--json", **variables)
    assert done.returncode == 0, done.stderr
    return {finding["check"]: finding for finding in json.loads(done.stdout)}


def test_a_host_that_is_fit(shards: Path, tmp_path: Path) -> None:
    fake_ssh.write(tmp_path, fake_ssh.RUNS)
    (tmp_path / "hostfile").write_text("a slots=1\nb slots=1\n")
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    findings = found(recipe, "--hostfile", tmp_path / "hostfile", "--include", "b", PATH=path)
    assert list(findings) == [*CHECKS, "micro-batch"]  # no network check for a single rank
    # it may have no GPU, and answer so late, if it is busy, that its clock seems to be slow
    assert {name for name, finding in findings.items() if finding["state"] != "ok"} <= {"GPUs", "clocks"}
    assert findings["port"]["said"].endswith("of b is free")
    assert findings["layout"]["said"] == "ranks: 1, lanes: 4, gradient accumulation: 2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostfile", "run.yaml", "ssh"]  # nothing is left behind


@pytest.mark.slow
def test_ranks_of_this_host_are_started(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    findings = found(recipe, "--ranks", 2)
    assert list(findings) == [*CHECKS[:7], "interface", *CHECKS[7:], "network", "micro-batch"]
    assert findings["network"]["said"] == "the ranks met at 127.0.0.1, all 2"
    assert findings["micro-batch"]["said"] == "1 example computed here"


def test_what_is_wrong_is_said_with_what_to_do(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    done = doctor(recipe, f"data.shards={tmp_path}", "--ranks", 3)
    assert done.returncode == 2
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    wrong = [line.split()[1] for line in lines if line.startswith("wrong ")]
    assert wrong == ["layout", "recipe"]
    assert "-> use 2 ranks" in done.stdout
    assert "manifest" in next(line for line in lines if line.startswith("wrong    recipe"))


def test_the_visible_gpus_are_tried_unless_their_number_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed ignores CUDA_VISIBLE_DEVICES where the number is given."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert "--num_accelerators=2" not in Cluster(["deepspeed"], {THIS_HOST: 0}).start({THIS_HOST: 2})
    assert "--num_accelerators=2" in Cluster(["deepspeed"], {THIS_HOST: 2}).start({THIS_HOST: 2})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "--num_accelerators=2" in Cluster(["deepspeed"], {THIS_HOST: 0}).start({THIS_HOST: 2})
