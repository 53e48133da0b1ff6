"""The supervisor, with a small launcher that ends as a test specifies; with the real one: launches/test_hosts.py."""

import json
import shutil
import signal
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
from tests.test_imports import loaded
from tests.trainer.runs import STEP, vouch, write_run

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
trap 'touch "$1/signalled"' TERM INT USR1
touch "$1/ready"
while [ ! -e "$2" ]; do sleep 0.01; done
exit 75
"""


@pytest.fixture(scope="module")
def prepared(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complete checkpoints of steps 7 to 10; read only."""
    run = write_run(tmp_path_factory.mktemp("prepared") / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)
    first = checkpoint.folder(run, STEP)
    for step in range(STEP + 1, STEP + 4):
        change_state(shutil.copytree(first, checkpoint.folder(run, step)), step=step)
    return run / "checkpoints"


def change_state(folder: Path, **keys: object) -> None:
    state = json.loads((folder / checkpoint.STATE).read_text())
    (folder / checkpoint.STATE).write_text(json.dumps({**state, **keys}))
    vouch(folder)


Supervised = Callable[..., tuple[int, list[str], int]]


@pytest.fixture
def supervised(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Supervised:
    """Supervise a run to step 10 with the given ends; return exit code, printed lines and number of starts."""
    (tmp_path / "prepared").symlink_to(prepared)
    (tmp_path / "launcher.py").write_text(ENDS_AS_ASKED)

    def run(*ends: dict[str, int]) -> tuple[int, list[str], int]:
        (tmp_path / "ends.json").write_text(json.dumps(ends))
        command = [sys.executable, "-IS", str(tmp_path / "launcher.py"), str(tmp_path)]  # without packages: faster
        code = supervise(Training(command, tmp_path / "run", 10), 3, [], sleep=lambda _: time.sleep(0.005))
        return code, capsys.readouterr().err.splitlines(), len((tmp_path / "starts").read_text())

    return run


FAULT, TRAINED = {"code": 1}, "10 0: trained to the last step"
GIVING_UP = "giving up: no checkpoint after step {} in 3 starts; see the errors above"
AGAIN: list[tuple[dict[str, int], str]] = [  # a first end at step 7, and what is said of it
    ({"code": 1}, "7 1: starting again in 5 s"),
    ({"code": 0}, "7 0: starting again in 5 s"),
    ({"code": HUNG}, f"7 {HUNG} (no step for too long): starting again in 5 s"),
    ({"code": 247}, "7 247 (killed by SIGKILL): starting again in 5 s"),  # a rank
    ({"signal": signal.SIGKILL}, "7 137 (killed by SIGKILL): starting again in 5 s"),  # the launcher
    ({"code": RESUME}, "7 75 (stopped on request, saved): starting again in 0 s"),  # by the cluster
]
LIVES: list[tuple[list[dict[str, int]], int, list[str]]] = [  # the ends, the code, and what is said of each end
    ([{"step": 10}], 0, [TRAINED]),
    *(([{"step": 7, **end}, {"step": 10}], 0, [said, TRAINED]) for end, said in AGAIN),
    ([{"step": 7, "code": BAD_INPUT}], BAD_INPUT, ["7 2 (bad input): not starting again"]),
    ([{"step": 10, "code": BAD_INPUT}], BAD_INPUT, ["10 2 (bad input): not starting again"]),
    ([{"step": 7, "code": INTERRUPTED}], INTERRUPTED, ["7 130 (interrupted): not starting again"]),
    (
        [{"code": 0}] * 3,
        1,
        ["0 0: starting again in 10 s", "0 0: starting again in 20 s", f"0 0: {GIVING_UP.format(0)}"],
    ),
    (  # progress resets the count and the pause
        [FAULT, {"step": 7, **FAULT}, FAULT, {"step": 8, "code": 13}, *[{"code": 13}] * 3],
        13,
        [
            "0 1: starting again in 10 s",
            "7 1: starting again in 5 s",
            "7 1: starting again in 10 s",
            "8 13: starting again in 5 s",
            "8 13: starting again in 10 s",
            "8 13: starting again in 20 s",
            f"8 13: {GIVING_UP.format(8)}",
        ],
    ),
]


@pytest.mark.parametrize(("ends", "code", "said"), LIVES)
def test_it_starts_again_as_long_as_that_helps(
    supervised: Supervised, ends: list[dict[str, int]], code: int, said: list[str]
) -> None:
    ended, lines, starts = supervised(*ends)
    assert (ended, starts) == (code, len(ends))
    assert lines[1::2] == [f"supervise: step {line.replace(' ', ' of 10: ended with code ', 1)}" for line in said]


def test_a_training_that_stopped_without_a_gain_is_not_started_again(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    newest = shutil.copytree(prepared / "step-00000008", checkpoint.folder(run, 8))
    change_state(newest, best={"of": "ndcg@10", "value": 0.5, "step": 4, "last": 8, "bad": 2})
    assert supervise(Training(["true"], run, 10, 2), 1, [], sleep=lambda _: None) == 0
    assert capsys.readouterr().err.endswith("ended with code 0: trained until its probes no longer gained\n")
    assert supervise(Training(["true"], run, 10, 3), 1, [], sleep=lambda _: None) == 1


def test_a_last_checkpoint_that_is_seen_late_ends_it(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a shared file system this host may not see yet what another has just saved."""
    late = checkpoint.folder(tmp_path / "run", 10)

    def sleep(seconds: float) -> None:
        if "starting again" in capsys.readouterr().err:
            shutil.copytree(prepared / late.name, late)

    training = Training(["true"], tmp_path / "run", 10)
    assert supervise(training, 3, [], sleep) == 0
    assert capsys.readouterr().err == "supervise: trained to the last step\n"


def test_the_pause_doubles_up_to_a_longest() -> None:
    assert [pause(idle) for idle in range(9)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]


EXPLAINED = [  # a code, whether it may be ssh's, and its meaning to the program that it comes from
    (247, True, "247 (killed by SIGKILL)"),  # of a rank, from DeepSpeed's launcher
    (250, False, "250 (killed by SIGABRT)"),
    (139, True, "139 (killed by SIGSEGV)"),  # from a shell
    (129, True, "129 (killed by SIGHUP)"),
    (255, True, "255 (ssh failed or lost a host)"),
    (255, False, "255"),
    (HUNG, True, f"{HUNG} (no step for too long)"),
    (INTERRUPTED, False, "130 (interrupted)"),
    *((code, True, str(code)) for code in (0, 1, 127, 128)),
]


@pytest.mark.parametrize(("code", "by_ssh", "explained"), EXPLAINED)
def test_a_code_is_explained(code: int, by_ssh: bool, explained: str) -> None:
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
    command = ["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/child; exit 1"]
    supervise(Training(command, tmp_path / "run", 10), 1, [], sleep=lambda _: time.sleep(0.005))
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


SIGNALS = [  # the run's folder, how many signals it gets, and the line on the last of them
    ("not/there yet", 1, "SIGUSR1: asking the training to save and end; a second signal kills it"),
    ("run", 2, "SIGTERM again: killing the training"),
    ("file/folder", 2, "the training continues until a second signal"),  # its stop file cannot be written
]


@pytest.mark.parametrize(("place", "count", "said"), SIGNALS)
def test_the_first_signal_writes_the_stop_file_and_the_second_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, count: int, said: str
) -> None:
    (tmp_path / "file").touch()
    run, signals = tmp_path / place, list[int]()
    stop = run / STOP_FILE if count == 1 else tmp_path / "never"

    def sleep(seconds: float) -> None:
        if len(signals) < count and (tmp_path / "ready").exists():
            signals.append([signal.SIGUSR1, signal.SIGTERM][len(signals)])
        time.sleep(seconds / 50)

    command = ["sh", "-c", TRAINS, "sh", str(tmp_path), str(stop)]
    assert supervise(Training(command, run, 10), 3, signals, sleep) == RESUME
    assert not (tmp_path / "signalled").exists()
    assert not (run / STOP_FILE).exists()
    printed = capsys.readouterr().err
    assert said in printed
    ended = "75 (stopped on request, saved)" if count == 1 else "137 (killed by SIGKILL)"
    assert f"ended with code {ended}: stopped; the same command continues from step 0" in printed


def test_a_signal_between_two_starts_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signals: list[int] = []

    def sleep(seconds: float) -> None:
        if "starting again" in capsys.readouterr().err:
            signals.append(signal.SIGTERM)
        time.sleep(0.01)

    training = Training(["false"], tmp_path / "run", 10)
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
    names = loaded("trainer.cluster.hosts.supervisor")
    assert "trainer.cluster.hosts.launch" in names
    assert not {name for name in names if name.split(".")[0] == "deepspeed"}


BAD_WORDS = [
    ("-- deepspeed", "supervise: 'deepspeed' starts no training"),
    ("--tries 0 -- x", "deepsiam supervise: argument --tries: '0' is not a whole number above 0"),
]


@pytest.mark.parametrize(("words", "said"), BAD_WORDS)
def test_bad_input_is_one_line_and_code_2(words: str, said: str) -> None:
    refused = toy.run("trainer.supervise", *words.split())
    assert (refused.returncode, refused.stdout) == (BAD_INPUT, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(said)
