"""The supervisor: with a small launcher that ends as a test specifies, and with the real launcher and killed ranks."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.supervisor import BAD_INPUT, INTERRUPTED, Training, _explain, pause, supervise
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.run.stop import HUNG, RESUME, STOP_FILE
from tests import toy
from tests.killed import read_to
from tests.trainer.runs import STEP, vouch, write_run
from tests.warm import PATIENCE
from tests.warm_python import forked

# the n-th start ends as in the n-th entry of ends.json: {"step": checkpoint to write, "code" or "signal": how to end}
ENDS_AS_ASKED = """
import json, os, shutil, signal, sys
from pathlib import Path
here = Path(sys.argv[1])
ends = json.loads((here / "ends.json").read_text())
with open(here / "starts", "a+") as starts:
    starts.write("x")
    starts.flush()
    starts.seek(0)
    end = ends[len(starts.read()) - 1]
if end.get("step"):
    name = f"step-{end['step']:08d}"
    shutil.copytree(here / "prepared" / name, here / "run" / "checkpoints" / name)
if end.get("signal"):
    os.kill(os.getpid(), end["signal"])
sys.exit(end.get("code", 0))
"""

# trains until its stop file exists; records every signal that it receives
TRAINS = """
import os, signal, sys, time
from pathlib import Path
here, stop = Path(sys.argv[1]), Path(sys.argv[2])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda number, _: (here / "signalled").write_text(str(number)))
(here / "ready").write_text("")
while not stop.exists():
    time.sleep(0.01)
sys.exit(75)
"""

LEAVES_A_CHILD = """
import os, subprocess, sys, time
child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", child, sys.argv[1]])
while not (os.path.exists(sys.argv[1]) and os.path.getsize(sys.argv[1])):
    time.sleep(0.01)
sys.exit(1)
"""


@pytest.fixture(scope="module")
def prepared(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complete checkpoints of steps 7 to 10; read only."""
    run = write_run(tmp_path_factory.mktemp("prepared") / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)
    first = checkpoint.folder(run, STEP)
    for step in range(STEP + 1, STEP + 4):
        later = shutil.copytree(first, checkpoint.folder(run, step))
        state = json.loads((later / checkpoint.STATE).read_text())
        (later / checkpoint.STATE).write_text(json.dumps({**state, "step": step}))
        vouch(later)
    return run / "checkpoints"


Supervised = Callable[..., tuple[int, list[str], int]]


@pytest.fixture
def supervised(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Supervised:
    """Supervise a run to step 10 with the given ends; return exit code, printed lines and number of starts."""
    (tmp_path / "prepared").symlink_to(prepared)
    (tmp_path / "launcher.py").write_text(ENDS_AS_ASKED)

    def run(*ends: dict[str, int], tries: int = 3) -> tuple[int, list[str], int]:
        (tmp_path / "ends.json").write_text(json.dumps(ends))
        command = [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path)]
        code = supervise(Training(command, tmp_path / "run", 10), tries, [], sleep=lambda _: time.sleep(0.005))
        return code, capsys.readouterr().err.splitlines(), len((tmp_path / "starts").read_text())

    return run


AGAIN = [  # after a fault, it starts again in 5 s: the first end, and what is printed between step and pause
    *(pytest.param({"code": code}, str(code), id=f"code {code}") for code in (1, 0)),
    pytest.param({"code": HUNG}, f"{HUNG} (no step for too long)", id="hung"),
    pytest.param({"code": 247}, "247 (killed by SIGKILL)", id="killed rank"),
    pytest.param({"signal": signal.SIGKILL}, "137 (killed by SIGKILL)", id="killed launcher"),
    pytest.param({"code": RESUME}, "75 (stopped on request, saved)", id="stopped by the cluster"),
]


@pytest.mark.parametrize(("end", "explained"), AGAIN)
def test_after_a_fault_it_starts_again(supervised: Supervised, end: dict[str, int], explained: str) -> None:
    code, lines, starts = supervised({"step": 7, **end}, {"step": 10})
    assert (code, starts) == (0, 2)
    seconds = 0 if end.get("code") == RESUME else 5
    assert lines[1] == f"supervise: step 7 of 10: ended with code {explained}: starting again in {seconds} s"
    assert lines[-1] == "supervise: step 10 of 10: ended with code 0: trained to the last step"


ENDS = [  # the only ends, the exit code, and the end of the last line
    pytest.param([{"step": 10}], 0, "ended with code 0: trained to the last step", id="trained"),
    pytest.param([{"step": 7, "code": BAD_INPUT}], BAD_INPUT, "(bad input): not starting again", id="bad input"),
    pytest.param([{"step": 7, "code": INTERRUPTED}], INTERRUPTED, "(interrupted): not starting again", id="Ctrl-C"),
    pytest.param([{"step": 10, "code": BAD_INPUT}], BAD_INPUT, "not starting again", id="bad input, last step"),
    pytest.param([{"code": 0}] * 2, 1, "no checkpoint after step 0 in 2 starts; see the errors above", id="code 0"),
]


@pytest.mark.parametrize(("ends", "code", "said"), ENDS)
def test_it_ends(supervised: Supervised, ends: list[dict[str, int]], code: int, said: str) -> None:
    ended, lines, starts = supervised(*ends, tries=2)
    assert (ended, starts) == (code, len(ends))
    assert lines[-1].endswith(said)


def test_a_training_that_stopped_without_a_gain_is_not_started_again(prepared: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    newest = shutil.copytree(prepared / "step-00000008", checkpoint.folder(run, 8))
    state = json.loads((newest / checkpoint.STATE).read_text())
    best = {"of": "ndcg@10", "value": 0.5, "step": 4, "last": 8, "bad": 2}
    (newest / checkpoint.STATE).write_text(json.dumps({**state, "best": best}))
    vouch(newest)
    command = [sys.executable, "-c", ""]
    assert supervise(Training(command, run, 10, 2), 1, [], sleep=lambda _: None) == 0
    assert supervise(Training(command, run, 10, 3), 1, [], sleep=lambda _: None) == 1


def test_it_gives_up_when_nothing_progresses(supervised: Supervised) -> None:
    code, lines, starts = supervised(*[{"code": 13}] * 4, tries=4)
    assert (code, starts) == (13, 4)
    assert [line.split()[-2] for line in lines[1:-1:2]] == ["10", "20", "40"]
    assert "giving up: no checkpoint after step 0 in 4 starts" in lines[-1]


def test_a_last_checkpoint_that_is_seen_late_ends_it(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a shared file system this host may not see yet what another has just saved."""
    late = checkpoint.folder(tmp_path / "run", 10)

    def sleep(seconds: float) -> None:
        if "starting again" in capsys.readouterr().err:
            shutil.copytree(prepared / late.name, late)

    training = Training([sys.executable, "-c", ""], tmp_path / "run", 10)
    assert supervise(training, 3, [], sleep) == 0
    assert capsys.readouterr().err == "supervise: trained to the last step\n"


def test_progress_resets_the_count_and_the_pause(supervised: Supervised) -> None:
    fault = {"code": 1}
    code, lines, starts = supervised(fault, {"step": 7, **fault}, fault, {"step": 8, **fault}, fault, fault, tries=2)
    assert (code, starts) == (1, 6)
    assert [line.split()[-2] for line in lines[1:-1:2]] == ["10", "5", "10", "5", "10"]


def test_the_pause_doubles_up_to_a_longest() -> None:
    assert [pause(idle) for idle in range(9)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(
    ("code", "by_ssh", "explained"),
    [
        (247, True, "247 (killed by SIGKILL)"),  # of a rank, from DeepSpeed's launcher
        (250, False, "250 (killed by SIGABRT)"),
        (139, True, "139 (killed by SIGSEGV)"),  # from a shell
        (129, True, "129 (killed by SIGHUP)"),
        (255, True, "255 (ssh failed or lost a host)"),
        (255, False, "255"),
        (HUNG, True, f"{HUNG} (no step for too long)"),
        (INTERRUPTED, False, "130 (interrupted)"),
        (1, True, "1"),
        (127, True, "127"),
        (128, True, "128"),
        (0, True, "0"),
    ],
)
def test_a_code_is_explained_as_the_program_means_it_that_it_comes_from(
    code: int, by_ssh: bool, explained: str
) -> None:
    assert _explain(code, by_ssh) == explained


def test_damaged_checkpoints_are_reported_and_nothing_is_started(
    supervised: Supervised, prepared: Path, tmp_path: Path
) -> None:
    damaged = shutil.copytree(prepared / "step-00000007", tmp_path / "run" / "checkpoints" / "step-00000007")
    (damaged / checkpoint.WEIGHTS).write_bytes(b"")
    with pytest.raises(InputError, match="no older checkpoint is intact"):
        supervised()
    assert not (tmp_path / "starts").exists()


def test_no_process_of_a_run_is_left_before_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_text(LEAVES_A_CHILD)
    command = [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path / "child")]
    supervise(Training(command, tmp_path / "run", 10), 1, [], sleep=lambda _: time.sleep(0.005))
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def signalled(here: Path, run: Path, stop: Path, *, count: int) -> int:
    """Supervise a run of TRAINS that ends once the file `stop` exists; send `count` signals; return the exit code."""
    signals: list[int] = []

    def sleep(seconds: float) -> None:
        if len(signals) < count and (here / "ready").exists():
            signals.append([signal.SIGUSR1, signal.SIGTERM][len(signals)])
        time.sleep(seconds / 50)

    return supervise(Training([sys.executable, "-c", TRAINS, str(here), str(stop)], run, 10), 3, signals, sleep)


def test_the_first_signal_writes_the_stop_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "not" / "there yet"
    assert signalled(tmp_path, run, run / STOP_FILE, count=1) == RESUME
    assert not (tmp_path / "signalled").exists()
    assert not (run / STOP_FILE).exists()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("supervise: ")]
    assert lines[1] == "supervise: SIGUSR1: asking the training to save and end; a second signal kills it"
    assert "ended with code 75 (stopped on request, saved): stopped; the same command continues" in lines[2]


def test_the_second_signal_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert signalled(tmp_path, run, tmp_path / "never", count=2) == RESUME
    assert not (run / STOP_FILE).exists()
    assert "supervise: SIGTERM again: killing the training" in capsys.readouterr().err


def test_a_stop_file_that_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    assert signalled(tmp_path, tmp_path / "run" / "folder", tmp_path / "never", count=2) == RESUME
    assert "the training continues until a second signal" in capsys.readouterr().err


def test_a_signal_between_two_starts_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signals: list[int] = []

    def sleep(seconds: float) -> None:
        if "starting again" in capsys.readouterr().err:
            signals.append(signal.SIGTERM)
        time.sleep(0.01)

    training = Training([sys.executable, "-c", "raise SystemExit(1)"], tmp_path / "run", 10)
    assert supervise(training, 3, signals, sleep) == RESUME
    assert "stopped; the same command continues from step 0" in capsys.readouterr().err


@pytest.mark.parametrize("before", [[], ["--hostfile", "hosts"], ["--num_accelerators", "2"]])
def test_a_launcher_command_is_understood(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("this slots=2\n")
    command = ["deepspeed", *before, "--module", "trainer.pretrain", str(recipe), "steps=5", f"run={tmp_path}/other"]
    training = Training.from_command(command)
    assert (training.run, training.steps) == (tmp_path / "other", 5)
    assert training.command == [*command, "--resume"]
    assert Training.from_command(training.command) == training


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", "starts no training"),
        ("deepspeed --module trainer.evaluate x", "starts no training"),
        ("deepspeed --module trainer.pretrain --resume", "the recipe is missing"),
        ("deepspeed --module trainer.pretrain {recipe} stepss=5", "did you mean steps?"),
        ("deepspeed --module trainer.finetune {recipe}", "data.shards: unknown key"),
        ("deepspeed --module trainer.pretrain nowhere.yaml", "nowhere.yaml: cannot read: No such file"),
    ],
)
def test_a_command_that_is_not_understood(shards: Path, tmp_path: Path, command: str, words: str) -> None:
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards)
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        Training.from_command(command.format(recipe=recipe).split())


def test_a_missing_launcher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-launcher: cannot start it"):
        supervise(Training(["no-such-launcher"], tmp_path / "run", 10), 3, [])


def test_the_supervisor_does_not_load_deepspeed() -> None:
    loaded = "import sys, deepsiam.trainer.cluster.hosts.supervisor; sys.exit('deepspeed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], cwd=toy.ROOT).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-- deepspeed", "supervise: 'deepspeed' starts no training"),
        ("--tries 0 -- x", "deepsiam supervise: argument --tries: '0' is not a whole number above 0"),
    ],
)
def test_bad_input_is_one_line_and_code_2(words: str, said: str) -> None:
    refused = toy.run("trainer.supervise", *words.split())
    assert (refused.returncode, refused.stdout) == (BAD_INPUT, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(said)


def kill_rank_1(recipe: Path) -> None:
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "--local_rank=1" in words and str(recipe) in words:
            forked(process).kill()
            return
    pytest.fail("rank 1 is not running")


@pytest.mark.slow
def test_after_a_killed_rank_it_starts_again_and_on_a_signal_it_saves(
    shards: Path, tmp_path: Path, launcher: Path
) -> None:
    """That neither changes a bit of the result, launches/test_hosts.py and test_recovery.py show."""
    hostfile, printed = tmp_path / "hostfile", tmp_path / "printed"
    hostfile.write_text("localhost slots=2\n")
    printed.touch()
    recipe = toy.seed_recipe(tmp_path / "run.yaml", shards, steps=100_000, checkpoint={"every": 5})
    program, *rest = toy.launch_command(launcher, 2, "trainer.pretrain", recipe)
    of_hosts = ["--hostfile", str(hostfile), "--no_ssh_check", "--master_addr", "127.0.0.1"]
    supervisor = toy.start(0, "trainer.supervise", "--", program, *of_hosts, *rest[2:], printed=printed)
    read_to(supervisor, printed, "step 8/")
    kill_rank_1(recipe)
    read_to(supervisor, printed, "resuming from ")
    os.kill(supervisor.pid, signal.SIGTERM)
    code, lines = supervisor.wait(PATIENCE), printed.read_text().splitlines()
    assert code == RESUME, lines
    reports = [line for line in lines if line.startswith("supervise: ")]
    assert re.fullmatch(
        r"supervise: step \d*[05] of 100000: ended with code 247 \(killed by SIGKILL\): starting again in 5 s",
        reports[1],
    )
    assert reports[3].startswith("supervise: SIGTERM: asking the training to save and end")
    assert any(line.startswith("stopped on request after step ") for line in lines)
    assert "(stopped on request, saved): stopped; the same command continues from step " in reports[4]
