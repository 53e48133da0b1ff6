"""Trainings on several hosts, by hostfile, pdsh and ssh, as on a cluster."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests import toy
from tests.hosts import Hosts, network
from trainer.checkpoints import checkpoint
from trainer.run.stop import RESUME

pytestmark = pytest.mark.slow

CHANGES = {"steps": 20, "trunk": toy.TRUNK, "checkpoint": {"every": 5}}  # with dropout


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts at one switch."""
    with network(tmp_path_factory.mktemp("hosts"), 4) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def undisturbed(hosts: Hosts, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of an undisturbed training on the first two hosts."""
    recipe = toy.seed_recipe(tmp_path_factory.mktemp("undisturbed") / "run.yaml", shards, **CHANGES)
    code, output = supervised(hosts, recipe, at={})
    assert code == 0, output
    return recipe


def final_weights(recipe: Path) -> bytes:
    return (checkpoint.folder(recipe.with_suffix(""), 20) / checkpoint.WEIGHTS).read_bytes()


def supervised(
    hosts: Hosts,
    recipe: Path,
    *overrides: str,
    at: Mapping[str, Callable[[subprocess.Popen[str]], None]],
    number: int = 2,
) -> tuple[int, str]:
    """Supervise a training on the first hosts; act at the first line with each key of `at`, in the order of its keys.

    Return the exit code and the output.
    """
    options = ["--hostfile", str(hosts.hostfile), "--include", "@".join(hosts.addresses[:number])]
    launcher = [str(Path(sys.executable).with_name("deepspeed")), *options]
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
        words = next(iter(waiting), None)
        if words is not None and words in line:
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


def test_hosts_that_stay_dead_are_left_out_and_taken_in_again(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    changes = {**CHANGES, "steps": 25, "batch": {"size": 16, "micro": 4}}  # 4 micro-batches: 1, 2 or 4 ranks
    alone = toy.seed_recipe(tmp_path / "alone.yaml", shards, **changes)
    assert toy.launch(1, "trainer.pretrain", alone).returncode == 0
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **changes)

    def mend_both(_: object) -> None:
        hosts.mend(3)
        hosts.mend(1)
        kill_rank_1(recipe)

    steps = {
        "step 6/": lambda _: hosts.cut(3),
        "step 11/": lambda _: hosts.cut(1),
        "step 16/": mend_both,
    }
    code, output = supervised(hosts, recipe, "faults.hang_seconds=15", at=steps, number=4)
    assert code == 0, output
    starts = [line for line in output.splitlines() if line.startswith("supervise: ")]
    assert [line.split()[1] for line in starts if "is left out" in line] == [
        hosts.addresses[3],
        hosts.addresses[1],
        hosts.addresses[3],
    ]
    assert [line for line in starts if "ranks can train" in line] == ["supervise: 2 of 4 ranks can train"] * 2
    narrowed = [line for line in starts if "--force_multi" in line]
    first, second, third, _ = hosts.addresses
    assert f"--include {first}:0@{second}:0 " in narrowed[0]
    assert f"--include {first}:0@{third}:0 " in narrowed[1]
    assert sum("starting " in line and "--resume" in line for line in starts) == 4
    for term in ("mlm", "decoder"):
        losses = toy.scalars(recipe.with_suffix(""), f"loss/{term}")
        assert losses == pytest.approx(toy.scalars(alone.with_suffix(""), f"loss/{term}"), rel=1e-4)


def test_a_run_folder_that_is_not_shared_is_refused(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    recipe = toy.seed_recipe(tmp_path / "local.yaml", shards, run=str(tmp_path / "local" / "run"))
    hosts.hide(1, tmp_path / "local")
    code, output = supervised(hosts, recipe, at={})
    assert code == 2, output
    told = [line for line in output.splitlines() if "sees another folder there than rank 0 (1 of 2 ranks do)" in line]
    assert len(told) == 1, output
    assert told[0].startswith(f"{hosts.addresses[0]}: trainer.pretrain: {tmp_path}")  # pdsh names the host
    assert not [path for path in (tmp_path / "local" / "run").iterdir() if path.name.startswith("seen")]


def test_what_the_hosts_lack_is_refused_before_any_trains(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)  # 2 micro-batches a step
    code, output = supervised(hosts, recipe, at={}, number=4)
    assert code == 2
    assert output.startswith("supervise: batch: 2 micro-batches a step cannot be shared by 4 ranks")
    hosts.cut(1)
    try:
        code, output = supervised(hosts, recipe, at={})
    finally:
        hosts.mend(1)
    assert code == 2
    assert output.startswith(f"supervise: {hosts.addresses[1]} is not fit: ssh: connect to host {hosts.addresses[1]}")
    assert len(output.splitlines()) == 1
    assert not recipe.with_suffix("").exists()


def test_the_doctor_finds_the_hosts_fit_or_says_why_not(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, batch={"size": 16, "micro": 4})
    command = [sys.executable, "-m", "trainer.doctor", str(recipe), "--hostfile", str(hosts.hostfile)]

    def examined(*overrides: str) -> tuple[int, str]:
        line = hosts.on_first([*command, *overrides])
        done = subprocess.run(line, cwd=toy.ROOT, env=hosts.environment(), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, output = examined()
    assert code == 0, output
    assert "4 answer" in output
    assert "interface   gloo over cable" in output
    assert " out of a rank, " in output
    assert "over cable" in next(line for line in output.splitlines() if line.startswith("ok       network "))
    hosts.hide(2, tmp_path / "own")
    hosts.cut(3)
    try:
        code, output = examined(f"run={tmp_path}/own/run")
    finally:
        hosts.mend(3)
    assert code == 2
    wrong = [line for line in output.splitlines() if line.startswith("wrong ")]
    assert len(wrong) == 2, output
    assert f"{hosts.addresses[3]}: ssh: connect to host" in wrong[0]
    assert f"{hosts.addresses[2]} sees another {tmp_path}/own than this host" in wrong[1]
    assert "warning  network     not tried, nor the speed: no rank could start" in output
