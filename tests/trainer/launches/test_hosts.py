"""Trainings on several hosts, by hostfile, pdsh and ssh, as on a cluster."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.run.stop import RESUME
from tests import toy
from tests.hosts import VARIABLES, Hosts, network, remove_stale
from tests.warm_python import forked, programs

pytestmark = pytest.mark.slow

CHANGES = {"steps": 20, "trunk": toy.TRUNK, "checkpoint": {"every": 5}}  # with dropout


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts on one switch; tests that use them are skipped if this machine cannot create them."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(network(tmp_path_factory.mktemp("hosts"), 4))
        except InputError as reason:
            pytest.skip(str(reason))
        stack.enter_context(programs(made.here))
        yield made


@pytest.fixture(scope="module")
def undisturbed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of an undisturbed training on two ranks of one host, with as many threads as on the others."""
    recipe = toy.seed_recipe(tmp_path_factory.mktemp("undisturbed") / "run.yaml", shards, **CHANGES)
    done = toy.launch(2, "trainer.pretrain", recipe, OMP_NUM_THREADS=VARIABLES["OMP_NUM_THREADS"])
    assert done.returncode == 0, done.stderr
    return recipe


def final_weights(recipe: Path) -> bytes:
    return (checkpoint.folder(recipe.with_suffix(""), 20) / checkpoint.WEIGHTS).read_bytes()


def supervised(
    hosts: Hosts,
    recipe: Path,
    *overrides: str,
    at: Mapping[str, Callable[[subprocess.Popen[str]], None]],
    number: int = 2,
    launcher: Sequence[str] = (),
    deepspeed: Path | None = None,
) -> tuple[int, str]:
    """Supervise a training on the first hosts, or on those that the launcher's options name; see `follow`.

    All its processes are forked by `tests.warm_python`, unless a real `deepspeed` is to start the ranks.
    """
    options = launcher or ["--hostfile", str(hosts.hostfile), "--include", "@".join(hosts.addresses[:number])]
    command = [str(deepspeed or hosts.here / "deepspeed"), *options, "--module", "trainer.pretrain", str(recipe)]
    supervise = [str(hosts.here / "python"), "-m", "trainer.supervise", "--", *command, *overrides]
    return follow(hosts.on_first(supervise), hosts.environment(), at)


def follow(
    command: list[str],
    environment: Mapping[str, str],
    at: Mapping[str, Callable[[subprocess.Popen[str]], None]],
    folder: Path = toy.ROOT,
) -> tuple[int, str]:
    """Run a command; when a line contains the next key of `at`, call that key's action.

    Return the exit code and the output.
    """
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    waiting, output = dict(at), ""
    assert process.stdout is not None
    for line in process.stdout:
        output += line
        words = next(iter(waiting), None)
        if words is not None and words in line:
            waiting.pop(words)(process)
    return process.wait(), output


def kill(recipe: Path, *ranks: int) -> None:
    """Kill ranks, each alone on its host, whose launcher calls it local rank 0."""
    remaining = {*map(str, ranks)}
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_ours = str(recipe) in (process.info["cmdline"] or []) and "trainer.pretrain" in process.info["cmdline"]
        if is_ours and (rank := (process.info["environ"] or {}).get("RANK")) in remaining:
            forked(process).kill()
            remaining.remove(rank)
    assert not remaining, "these ranks are not running"


def test_no_pulled_cable_killed_rank_or_stop_changes_a_bit_of_the_result(
    hosts: Hosts, shards: Path, tmp_path: Path, undisturbed: Path
) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    code, output = supervised(
        hosts,
        recipe,
        "faults.hang_seconds=10",
        at={
            "step 8/": lambda _: hosts.cut(),
            "starting again in": lambda _: hosts.mend(),
            "step 11/": lambda _: kill(recipe, 1),
            "ended with code 247": lambda _: None,  # rank 0 may print a step or two more
            "step 12/": lambda supervisor: supervisor.send_signal(signal.SIGTERM),
        },
    )
    assert code == RESUME, output
    assert "no step for 10 s (faults.hang_seconds)" in output
    assert "step 5 of 20: ended with code" in output
    assert "lost contact with another rank, which reported no error: " in output
    assert "step 10 of 20: ended with code 247 (killed by SIGKILL)" in output
    assert "stopped on request after step " in output
    code, output = supervised(hosts, recipe, at={}, deepspeed=toy.LAUNCHER)
    assert code == 0, output
    assert final_weights(recipe) == final_weights(undisturbed)


def test_hosts_that_stay_dead_are_left_out_and_taken_in_again(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    changes = {**CHANGES, "steps": 15, "batch": {"size": 16, "micro": 4}}  # 4 micro-batches: 1, 2 or 4 ranks
    alone = toy.seed_recipe(tmp_path / "alone.yaml", shards, **changes)
    assert toy.launch(1, "trainer.pretrain", alone).returncode == 0
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **changes)

    def cut_both(_: object) -> None:
        hosts.cut(3)
        hosts.cut(1)

    def mend_both(_: object) -> None:
        hosts.mend(3)
        hosts.mend(1)
        kill(recipe, 0, 1)

    code, output = supervised(
        hosts, recipe, "faults.hang_seconds=10", at={"step 6/": cut_both, "step 11/": mend_both}, number=4
    )
    assert code == 0, output
    starts = [line for line in output.splitlines() if line.startswith("supervise: ")]
    left_out = {line.split()[1] for line in starts if "is left out: ssh: connect to host " in line}
    assert left_out == {hosts.addresses[1], hosts.addresses[3]}
    assert [line for line in starts if "ranks can train" in line] == ["supervise: 2 of 4 ranks can train"]
    (narrowed,) = (line for line in starts if "--force_multi" in line)
    assert f"--include {hosts.addresses[0]}:0@{hosts.addresses[2]}:0 " in narrowed
    assert sum("starting " in line and "--resume" in line for line in starts) == 3
    for term in ("mlm", "decoder"):
        losses = toy.scalars(recipe.with_suffix(""), f"loss/{term}")
        expected = toy.scalars(alone.with_suffix(""), f"loss/{term}")
        assert losses == pytest.approx(expected, rel=1e-4)
        on_four = range(1, 6)
        assert [losses[step] for step in on_four] == pytest.approx([expected[step] for step in on_four], rel=1e-5)


def test_a_host_that_sends_slowly_is_named(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    changes = {"steps": 100_000, "log_every": 5, "batch": {"size": 16, "micro": 4}}  # stopped when a slow one is named
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **{**CHANGES, **changes})
    limit_and_stop = {
        "step 5/": lambda _: hosts.slow(2, "8mbit"),
        "from or to its host": lambda supervisor: supervisor.send_signal(signal.SIGTERM),
    }
    try:
        code, output = supervised(hosts, recipe, at=limit_and_stop, number=4)
    finally:
        hosts.unslow(2)
    assert code == RESUME, output
    slow = [line for line in output.splitlines() if "from or to its host" in line]
    assert any("rank 2 on" in line for line in slow), slow
    assert max(toy.scalars(recipe.with_suffix(""), "ranks/message_slowest").values()) > 1.5


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
    assert code == 2, output
    assert output.startswith("supervise: batch: 2 micro-batches a step cannot be shared by 4 ranks")
    with hosts.unreachable(1):
        code, output = supervised(hosts, recipe, at={})
    assert code == 2, output
    assert output.startswith(f"supervise: {hosts.addresses[1]} is not fit: ssh: connect to host {hosts.addresses[1]}")
    assert len(output.splitlines()) == 1
    assert not recipe.with_suffix("").exists()


def test_the_doctor_finds_the_hosts_fit_or_says_why_not(hosts: Hosts, shards: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, batch={"size": 16, "micro": 4})
    command = [str(hosts.here / "python"), "-m", "trainer.doctor", str(recipe), "--hostfile", str(hosts.hostfile)]

    def examined(*overrides: str) -> tuple[int, str]:
        line = hosts.on_first([*command, *overrides])
        done = subprocess.run(line, cwd=toy.ROOT, env=hosts.environment(), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, output = examined()
    assert code == 0, output
    assert "4 answer" in output
    assert "interface    gloo over cable" in output
    assert "ok       network      the ranks met at " in output
    assert ", all 4" in output
    hosts.hide(2, tmp_path / "own")
    with hosts.unreachable(3):
        code, output = examined(f"run={tmp_path}/own/run")
    assert code == 2, output
    wrong = [line for line in output.splitlines() if line.startswith("wrong ")]
    assert len(wrong) == 2, output
    assert f"{hosts.addresses[3]}: ssh: connect to host" in wrong[0]
    assert f"{hosts.addresses[2]} sees another {tmp_path}/own than this host" in wrong[1]
    assert "warning  network      not tried: no rank could start" in output


@pytest.mark.skipif(not shutil.which("ompi_info"), reason="Open MPI is not installed")
def test_ranks_that_mpirun_starts_change_no_bit(hosts: Hosts, shards: Path, tmp_path: Path, undisturbed: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{address} slots=1\n" for address in hosts.addresses[:2]))
    launcher = ["--hostfile", str(hostfile), "--launcher", "openmpi"]
    launcher += ["--launcher_args", f"--bind-to none -x MASTER_ADDR={hosts.addresses[0]}"]
    code, output = supervised(hosts, recipe, "ranks=2", at={}, launcher=launcher)
    assert code == 0, output
    assert final_weights(recipe) == final_weights(undisturbed)


# one rank on each of two hosts; the first rank to fail gives the exit code and ends the other
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export SLURM_STEP_NUM_TASKS=2 "SLURM_STEP_TASKS_PER_NODE=1(x2)" SLURM_LOCALID=0
SLURM_PROCID=0 SLURM_NODEID=0 ip netns exec {0} "$@" &
SLURM_PROCID=1 SLURM_NODEID=1 ip netns exec {1} "$@" &
wait -n && wait -n
code=$?
kill $(jobs -p) 2>/dev/null
exit $code
"""


def test_a_slurm_job_saves_before_its_time_is_over_and_the_next_goes_on(
    hosts: Hosts, shards: Path, tmp_path: Path, undisturbed: Path
) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    scontrol = f'#!/bin/sh\n[ "$*" = "show hostnames these" ] && printf "{hosts.addresses[0]}\\nothers\\n"\n'
    for name, script in {"srun": SRUN.format(*hosts.names), "scontrol": scontrol}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(hosts.here)
    (hosts.here / "activate").write_text(f"PATH={hosts.here}:$PATH")
    environment = {
        **hosts.environment(),
        "PATH": f"{tmp_path}:{hosts.environment()['PATH']}",
        **VARIABLES,
        "SLURM_JOB_NODELIST": "these",
        "SLURM_JOB_ID": "17",
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": "1",
    }
    job = hosts.on_first(["bash", str(toy.ROOT / "docs" / "slurm.sbatch"), str(recipe)])
    stop = {"step 8/": lambda batch: batch.send_signal(signal.SIGUSR1)}
    code, output = follow(job, environment, stop, tmp_path)
    assert code == RESUME, output
    assert "supervise: SIGUSR1: asking the training to save and end" in output
    code, output = follow(job, environment, {}, tmp_path)
    assert code == 0, output
    assert final_weights(recipe) == final_weights(undisturbed)


def test_the_pods_of_kubernetes_train_as_two_ranks_of_one_host_do(
    hosts: Hosts, shards: Path, tmp_path: Path, undisturbed: Path
) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **CHANGES)
    *_, job = yaml.safe_load_all((toy.ROOT / "docs" / "kubernetes.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    here = {
        "/etc/deepsiam/hostfile": str(hosts.hostfile),
        "--no_ssh": f"--no_ssh --exclude {hosts.addresses[2]}@{hosts.addresses[3]}",
        "deepsiam-0.deepsiam": hosts.addresses[0],
        "recipes/seed_base.yaml": str(recipe),
        ".venv/bin": str(hosts.here),
        "ranks=16": "ranks=2",
    }
    for published, own in here.items():
        assert published in script
        script = script.replace(published, own)
    pods = [
        subprocess.Popen(
            hosts.on(number, [*container["command"], script]),
            cwd=toy.ROOT,
            env={**hosts.environment(), **VARIABLES, "JOB_COMPLETION_INDEX": str(number)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    printed = [pod.communicate()[1] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], printed
    assert final_weights(recipe) == final_weights(undisturbed)


def test_hosts_of_a_killed_test_are_removed_with_what_runs_on_them(hosts: Hosts) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    subprocess.run(["ip", "netns", "add", f"deepsiam-{ended.pid}-0"], check=True)
    left = subprocess.Popen(["ip", "netns", "exec", f"deepsiam-{ended.pid}-0", "sleep", "600"])
    while not Path(f"/proc/{left.pid}/cmdline").read_bytes().startswith(b"sleep\0"):  # `ip` has entered and run it
        time.sleep(0.05)
    remove_stale()
    assert left.wait() == -signal.SIGKILL
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    assert f"deepsiam-{ended.pid}-" not in listed
    assert hosts.names[0] in listed
