"""Faults during a run, with real processes: signals, another number of ranks, NaN, hangs, bad data."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from deepsiam.trainer.jobs.trace import digest, trace
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run import stop
from tests import toy
from tests.killed import read_to
from tests.trainer.many_runs import train
from tests.warm import PATIENCE

pytestmark = pytest.mark.slow  # every test starts real processes, about ten seconds each

DROPOUT = {"trunk": toy.TRUNK}


class Training:
    """A run that has been started; its processes are forked, or started by a launcher."""

    def __init__(self, recipe: Path, *arguments: object, launcher: Path | None = None) -> None:
        self.recipe, self.launcher = recipe, launcher
        self.printed = recipe.parent / f"printed-{time.monotonic_ns()}"
        self.printed.touch()
        self.process = toy.start(2, "trainer.pretrain", recipe, *arguments, printed=self.printed, launcher=launcher)

    def read_to(self, beginning: str) -> None:
        read_to(self.process, self.printed, beginning)

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def ranks(self) -> list[psutil.Process]:
        """The processes of the ranks, by rank."""
        if not self.launcher:
            return sorted(psutil.Process(self.process.pid).children(), key=psutil.Process.create_time)
        started = {f"--local_rank={rank}" for rank in (0, 1)}  # by the launcher that DeepSpeed starts on a host
        words = {p: p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])}
        ranks = [p for p, of in words.items() if str(self.recipe) in of and started & {*of}]
        return sorted(ranks, key=lambda p: p.environ()["RANK"])


def tampered(kind: str, recipe: Path, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return toy.launch(2, "tests.trainer.tampered", recipe, *arguments, TAMPER=kind, **more)


def same_run(run: Path, other: Path) -> None:
    """Check that two runs of 30 steps have the same numbers at every step, and the same final weights."""
    for tag in ("loss/mlm", "loss/decoder", "grad_norm"):
        assert toy.scalars(run, tag) == toy.scalars(other, tag)
    first, second = (checkpoint.folder(each, 30) / checkpoint.WEIGHTS for each in (run, other))
    assert first.read_bytes() == second.read_bytes()


@pytest.fixture(scope="module")
def undisturbed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 30 steps on 2 ranks, with dropout and 2 loader workers per rank."""
    recipe = toy.seed_recipe(
        tmp_path_factory.mktemp("undisturbed") / "run.yaml", shards, steps=30, checkpoint={"every": 10}, **DROPOUT
    )
    # the disk of its log is full from the first line on, which ends no run
    assert toy.start(2, "trainer.pretrain", recipe, printed=Path("/dev/full")).wait(PATIENCE) == 0
    return recipe.with_suffix("")


@pytest.mark.parametrize("whom", ["one rank, SIGUSR1", "the launcher, SIGTERM"])
def test_stopped_on_request_it_saves_and_resumes_as_if_never_stopped(
    shards: Path, tmp_path: Path, undisturbed: Path, launcher: Path, whom: str
) -> None:
    data = {"shards": str(shards), "lanes": 4, "window": 2, "workers": 1}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=30, checkpoint={"every": 10}, data=data, **DROPOUT)
    training = Training(recipe, launcher=launcher if "launcher" in whom else None)
    training.read_to("step 13/")
    ranks = training.ranks()
    assert len(ranks) == 2
    if whom == "the launcher, SIGTERM":
        host_launcher = ranks[0].parent()
        assert host_launcher is not None
        host_launcher.send_signal(signal.SIGTERM)  # it sends the same to all ranks
    else:
        ranks[1].send_signal(signal.SIGUSR1)
    code, printed = training.end(), training.printed.read_text()
    assert code == (1 if "launcher" in whom else stop.RESUME), printed  # the launcher has its own code
    assert "stopped on request after step" in printed
    stopped = checkpoint.newest(tmp_path / "run")
    assert stopped is not None
    assert 13 <= checkpoint.step_of(stopped) < 30
    resumed = toy.launch(2, "trainer.pretrain", recipe, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert f"resuming from {stopped}" in resumed.stdout
    same_run(tmp_path / "run", undisturbed)


KILLS = int(os.environ.get("KILLS", "3"))  # one of each kind


def test_killed_repeatedly_at_any_moment_it_ends_with_the_weights_of_the_undisturbed_run(
    shards: Path, tmp_path: Path, undisturbed: Path
) -> None:
    """SIGKILL one rank, all, or the launcher, at random moments: with a save per step, about half are during a save."""
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=30, checkpoint={"every": 1}, **DROPOUT)
    chance = random.Random()
    for number in range(KILLS):
        step = 1 + step_reached(tmp_path / "run")
        if step > 30:  # more kills than steps: start a new run
            same_run(tmp_path / "run", undisturbed)
            shutil.rmtree(tmp_path / "run")
            step = 1
        training = Training(recipe, "--resume", launcher=toy.LAUNCHER if number % 3 == 1 else None)
        training.read_to(f"step {step}/")
        time.sleep(chance.uniform(0, 0.5))
        ranks = training.ranks()
        launcher = ranks[0].parent() if ranks else None
        launchers = [launcher, launcher and launcher.parent()]  # of the host, and `deepspeed`
        whom = [*ranks, launcher] if number % 3 == 0 else [chance.choice(launchers if number % 3 == 1 else ranks)]
        for victim in whom:
            if victim is not None:
                with suppress(psutil.NoSuchProcess):
                    victim.kill()
        training.end()  # ranks whose launcher has died save and end
        psutil.wait_procs(ranks, timeout=PATIENCE)
    last = toy.launch(2, "trainer.pretrain", recipe, "--resume")
    assert last.returncode == 0, last.stderr
    same_run(tmp_path / "run", undisturbed)
    assert not list((tmp_path / "run" / "checkpoints").glob("*.partial"))


def step_reached(run: Path) -> int:
    newest = checkpoint.newest(run)
    return checkpoint.step_of(newest) if newest else 0


def test_two_processes_cannot_train_the_same_run(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=2000)
    first = Training(recipe)
    first.read_to("step 2/")
    second = toy.launch(2, "trainer.pretrain", recipe, "--resume")
    assert second.returncode == 2
    assert "is being trained by another process" in second.stderr
    for rank in first.ranks():
        rank.kill()
    first.end()


def test_a_run_resumes_with_more_ranks(shards: Path, tmp_path: Path) -> None:
    """With fewer, and under the other ZeRO stages: see test_half_precision, test_optimizers and test_step_negatives."""
    changes = {"steps": 12, "checkpoint": {"every": 8}, "batch": {"size": 16, "micro": 4}}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **changes)
    two = toy.launch(2, "trainer.pretrain", recipe)
    assert two.returncode == 0, two.stderr
    other = tmp_path / "other"
    shutil.copytree(checkpoint.folder(tmp_path / "run", 8), checkpoint.folder(other, 8))
    done = toy.launch(4, "trainer.pretrain", recipe, "--resume", f"run={other}")
    assert done.returncode == 0, done.stderr
    assert "was saved by 2 ranks: converting it for 4" in done.stdout
    for term in ("mlm", "decoder"):
        expected = toy.scalars(tmp_path / "run", f"loss/{term}")
        seen = toy.scalars(other, f"loss/{term}")
        assert list(seen) == list(range(9, 13))
        assert seen == pytest.approx({step: expected[step] for step in seen}, rel=1e-4)
    assert not (other / "universal").exists()


def test_a_run_resumes_with_micro_batches_of_another_size(shards: Path, tmp_path: Path) -> None:
    """With two lanes, two micro-batches of 4 hold the same examples as four of 2: even the losses stay the same."""
    changes = {"steps": 16, "checkpoint": {"every": 8}, "data": {"shards": str(shards), "lanes": 2, "window": 2}}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, **changes)
    undisturbed = toy.launch(1, "trainer.pretrain", recipe)
    assert undisturbed.returncode == 0, undisturbed.stderr
    other = tmp_path / "other"
    shutil.copytree(checkpoint.folder(tmp_path / "run", 8), checkpoint.folder(other, 8))
    done = toy.launch(2, "trainer.pretrain", recipe, "--resume", f"run={other}", "batch.micro=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("batch.micro is 2 from step 9 on, and was 4: no example is lost or repeated") == 1
    for term in ("mlm", "decoder"):
        expected = toy.scalars(tmp_path / "run", f"loss/{term}")
        seen = toy.scalars(other, f"loss/{term}")
        assert list(seen) == list(range(9, 17))
        assert seen == pytest.approx({step: expected[step] for step in seen}, rel=1e-4)
    state = checkpoint.read_state(checkpoint.folder(other, 16))
    assert (state.cursor.micro_batches, state.cursor.micro_sizes) == (16 * 4, {0: 4, 8: 2})
    traced = toy.run("trainer.trace", other / "recipe.yaml", "--steps", "9:10")
    assert [line.split()[0] for line in traced.stdout.splitlines()] == ["9", "10"], traced.stderr
    refused = toy.run("trainer.trace", other / "recipe.yaml", "--steps", "8:9")
    assert refused.returncode == 2
    assert "steps 1 to 8 were trained with batch.micro=4, and reading begins at step 1" in refused.stderr


def test_nan_is_reported_and_its_step_is_not_saved(shards: Path, tmp_path: Path) -> None:
    recipe, token, step = poisoned_recipe(shards, tmp_path)
    done = tampered("poison", recipe, POISON=token)
    assert done.returncode == 2, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("trainer."))
    assert re.search(
        rf"step {step}: the mlm loss is nan: micro-batch \d+, lane \d, documents shard-\d+.tar chunk", line
    )
    assert f"--show {step}" in line
    assert "Traceback" not in done.stderr
    newest = checkpoint.newest(tmp_path / "run")
    assert newest is None or checkpoint.step_of(newest) < step


@pytest.mark.parametrize("config", ["cpu", "zero3_bf16"])
def test_nan_is_skipped_where_the_recipe_asks_for_it(shards: Path, tmp_path: Path, config: str) -> None:
    recipe, token, step = poisoned_recipe(shards, tmp_path)
    done = tampered("poison", recipe, "faults.on_nan=skip", f"deepspeed={config}", POISON=token)
    assert done.returncode == 0, done.stderr
    assert f"going back to step-{(step - 1) // 2 * 2:08d}" in done.stderr
    state = checkpoint.read_state(checkpoint.folder(tmp_path / "run", 12))
    assert state.cursor.micro_batches > 12 * 2
    assert len(toy.scalars(tmp_path / "run", "loss/mlm")) == 12


def poisoned_recipe(shards: Path, tmp_path: Path) -> tuple[Path, int, int]:
    """A recipe, a token id that occurs in only one of the first 30 steps, and that step, from 3 to 8."""
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=12, checkpoint={"every": 2})
    described = load(PretrainRecipe, recipe)

    seen = {}
    for step, batches in trace(described, shard_data(described), 1, 1, 0):
        seen[step] = {int(i) for b in batches for i in b.micro_batch.arrays["original_ids"].ravel()}
        if step == 30:
            break
    for step in range(3, 9):
        others = set().union(*(ids for other, ids in seen.items() if other != step))
        if unique := seen[step] - others:
            return recipe, min(unique), step
    pytest.fail("no step has a token that the others lack")


def test_a_rank_that_gets_a_tenth_of_a_core_is_named(shards: Path, tmp_path: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=100_000)  # stopped when the slow rank is named
    training = Training(recipe)
    training.read_to("step 1/")
    threading.Thread(target=a_tenth_of_a_core, args=(training.ranks()[1],), daemon=True).start()
    named = f"rank 1 on {socket.gethostname()} is slow: its forward passes take"
    while named not in training.printed.read_text():
        assert training.process.poll() is None
        time.sleep(0.1)
    (tmp_path / "run" / stop.STOP_FILE).touch()
    training.end()
    assert max(toy.scalars(tmp_path / "run", "ranks/forward_slowest").values()) > 1.5


def a_tenth_of_a_core(process: psutil.Process) -> None:
    """Let a process run only a tenth of the time, until it ends."""
    with suppress(psutil.NoSuchProcess):
        while True:
            process.suspend()
            time.sleep(0.09)
            process.resume()
            time.sleep(0.01)


def test_a_hang_shows_every_ranks_stack_and_ends_the_run(shards: Path, tmp_path: Path, launcher: Path) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    done = tampered("hang", recipe, "faults.hang_seconds=8", launcher=launcher)  # it gives the ranks a second
    assert done.returncode == stop.HUNG, done.stderr
    for rank in (0, 1):
        assert f"rank {rank}: no step for 8 s" in done.stderr
    assert "in hanging" in done.stderr  # where rank 1 sleeps
    assert "all_reduce" in done.stderr  # where rank 0 waits for rank 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 1), (signal.SIGSTOP, stop.HUNG)])
def test_a_loader_worker_that_is_killed_or_stopped_ends_the_run_and_leaves_nothing(
    shards: Path, tmp_path: Path, number: int, code: int
) -> None:
    data = {"shards": str(shards), "lanes": 4, "window": 2, "workers": 1}
    faults = {"hang_seconds": 10}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=1_000_000, data=data, faults=faults)
    training = Training(recipe)
    training.read_to("step 3/")
    (worker,) = training.ranks()[1].children()
    worker.send_signal(number)
    assert training.end() == code
    printed = training.printed.read_text()
    assert "Traceback" not in printed
    lines = [line for line in printed.splitlines() if f"DataLoader worker (pid {worker.pid}) is killed" in line]
    assert len(lines) == (number == signal.SIGKILL)
    assert all(line.startswith("trainer.pretrain: rank 1: ") and "--resume" in line for line in lines)
    psutil.wait_procs([worker], timeout=PATIENCE)
    assert not worker.is_running()


def test_real_ranks_train_on_what_trace_shows(shards: Path, tmp_path: Path) -> None:
    data = {"mix": {"a": {"shards": str(shards), "weight": 0.7}, "b": {"shards": str(shards), "weight": 0.3}}}
    recipe = toy.seed_recipe(
        tmp_path / "run.yaml", shards, steps=12, data={**data, "lanes": 4, "window": 2, "workers": 1}
    )
    done = tampered("witness", recipe, WITNESS=tmp_path / "seen")
    assert done.returncode == 0, done.stderr
    ranks = [(tmp_path / f"seen.{rank}").read_text().splitlines() for rank in (0, 1)]
    consumed = [sorted(" ".join(lines).split()) for lines in zip(*ranks, strict=True)]

    described = load(PretrainRecipe, recipe)
    steps = trace(described, shard_data(described), 1, 1, 0)
    for expected, (_, batches) in zip(consumed, steps, strict=False):
        assert sorted(digest([batch.micro_batch]) for batch in batches) == expected
    for name in ("a", "b"):
        assert toy.scalars(tmp_path / "run", f"loss/mlm/{name}")


def test_bad_shards_are_skipped_up_to_a_number(shards: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(shards, tmp_path / "shards"))
    tars = sorted(copy.glob("*.tar"))
    tars[0].write_bytes(tars[0].read_bytes()[:-1000])
    tars[1].unlink()
    flipped = bytearray(tars[2].read_bytes())
    flipped[2000] ^= 1
    tars[2].write_bytes(flipped)
    recipe = toy.seed_recipe(tmp_path / "run.yaml", copy, steps=75, faults={"on_bad_shard": "skip"})
    done = tampered("impatient", recipe)
    assert done.returncode == 0, done.stderr
    newest = checkpoint.newest(tmp_path / "run")
    assert newest is not None
    assert {skip.shard for skip in checkpoint.read_state(newest).cursor.skips} == {0, 1, 2}
    assert "bad shard 3 of at most 10, skipped" in done.stderr
    assert done.stderr.count("trying again in") >= 6  # each shard is read twice more: the error may be temporary
    stopped = tampered("impatient", recipe, f"run={tmp_path}/few", "faults.most_bad_shards=2")
    assert stopped.returncode == 2
    lines = [line for line in stopped.stderr.splitlines() if line.startswith("trainer.")]
    assert len(lines) == 1, stopped.stderr
    assert "3 bad shards, faults.most_bad_shards is 2" in lines[0]


def test_validation_is_the_same_for_any_number_of_ranks(shards: Path, tmp_path: Path) -> None:
    validation = {"shards": str(toy.write_shards_with(tmp_path, shards, count=30)), "every": 2}
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=4, validation=validation)
    tolerances = {"cpu": 1e-4, "zero3_bf16": 1e-2}
    for ranks in (1, 2):
        runs = [[recipe, f"run={tmp_path}/{config}-{ranks}", f"deepspeed={config}"] for config in tolerances]
        assert train(ranks, runs, tmp_path).count("step 2  validation  mlm ") == 2
    for config, tolerance in tolerances.items():
        one, two = (toy.scalars(tmp_path / f"{config}-{ranks}", "validation/mlm") for ranks in (1, 2))
        assert list(one) == [2, 4]
        assert one == pytest.approx(two, rel=tolerance)
