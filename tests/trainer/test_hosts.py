"""Trainings on two hosts, by hostfile, pdsh and ssh, as on a cluster."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests import toy
from tests.hosts import Hosts, two_hosts
from trainer.checkpoints import checkpoint
from trainer.run.stop import RESUME

pytestmark = pytest.mark.slow

CHANGES = {"steps": 20, "trunk": toy.TRUNK, "checkpoint": {"every": 5}}  # with dropout


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts with a cable between them."""
    with two_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def undisturbed(hosts: Hosts, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of an undisturbed training on both hosts."""
    recipe = toy.seed_recipe(tmp_path_factory.mktemp("undisturbed") / "run.yaml", shards, **CHANGES)
    code, output = supervised(hosts, recipe, at={})
    assert code == 0, output
    return recipe


def final_weights(recipe: Path) -> bytes:
    return (checkpoint.folder(recipe.with_suffix(""), 20) / checkpoint.WEIGHTS).read_bytes()


def supervised(
    hosts: Hosts, recipe: Path, *overrides: str, at: Mapping[str, Callable[[subprocess.Popen[str]], None]]
) -> tuple[int, str]:
    """Supervise a training on both hosts; act once, at the first line with the key of `at`; return code and output."""
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--hostfile", str(hosts.hostfile)]
    command = [*launcher, "--module", "trainer.pretrain", str(recipe), *overrides]
    supervisor = subprocess.Popen(
        hosts.on_first([sys.executable, "-m", "trainer.supervise", "--", *command]),
        cwd=toy.ROOT,
        env=hosts.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    waiting, output = dict(at), ""
    assert supervisor.stdout is not None
    for line in supervisor.stdout:
        output += line
        for words in [words for words in waiting if words in line]:
            waiting.pop(words)(supervisor)
    return supervisor.wait(), output


def kill_rank_1(recipe: Path) -> None:
    """Kill the rank of the second host; its launcher there calls it local rank 0."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_ours = str(recipe) in (process.info["cmdline"] or []) and "trainer.pretrain" in process.info["cmdline"]
        if is_ours and (process.info["environ"] or {}).get("RANK") == "1":
            process.kill()
            return
    pytest.fail("rank 1 is not running")


def test_two_hosts_train_as_two_ranks_of_one_do(shards: Path, tmp_path: Path, undisturbed: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    assert toy.launch(2, "trainer.pretrain", recipe).returncode == 0
    for term in ("mlm", "decoder"):
        losses = toy.scalars(undisturbed.with_suffix(""), f"loss/{term}")
        # not to the bit: a rank alone on its host uses more threads
        assert losses == pytest.approx(toy.scalars(recipe.with_suffix(""), f"loss/{term}"), rel=1e-5)


def test_neither_a_killed_rank_nor_a_stop_changes_a_bit_of_the_result(
    hosts: Hosts, shards: Path, tmp_path: Path, undisturbed: Path
) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    code, output = supervised(
        hosts,
        recipe,
        at={
            "step 8/": lambda _: kill_rank_1(recipe),
            "step 12/": lambda supervisor: supervisor.send_signal(signal.SIGTERM),
        },
    )
    assert code == RESUME, output
    assert "step 5 of 20: ended with code" in output
    assert "stopped on request after step 1" in output
    code, output = supervised(hosts, recipe, at={})
    assert code == 0, output
    assert final_weights(recipe) == final_weights(undisturbed)


def test_a_pulled_cable_costs_the_steps_since_the_last_checkpoint(
    hosts: Hosts, shards: Path, tmp_path: Path, undisturbed: Path
) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    code, output = supervised(
        hosts,
        recipe,
        "faults.hang_seconds=6",
        at={"step 8/": lambda _: hosts.cut(), "starting again in": lambda _: hosts.mend()},
    )
    assert code == 0, output
    assert "no step for 6 s (faults.hang_seconds)" in output
    assert final_weights(recipe) == final_weights(undisturbed)
