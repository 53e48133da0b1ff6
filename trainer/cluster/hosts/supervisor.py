"""Start a training run, and restart it after a fault for as long as it makes progress."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import make_directory, os_errors_as_input_errors
from deepsiam.trainer.cluster.hosts.choose import HostChoice, check_ranks, choose
from deepsiam.trainer.cluster.hosts.launch import Launch
from deepsiam.trainer.cluster.hosts.session import kill
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe
from deepsiam.trainer.training.run.stop import HUNG, RESUME, STOP_FILE

MODULES: dict[str, type[Recipe]] = {"trainer.pretrain": PretrainRecipe, "trainer.finetune": FinetuneRecipe}
BAD_INPUT, INTERRUPTED = 2, 130  # exit codes
MEANINGS = {
    BAD_INPUT: "bad input",
    RESUME: "stopped on request, saved",
    HUNG: "no step for too long",
    INTERRUPTED: "interrupted",
}
SSH_FAILED = 255  # exit code of ssh; the launcher's own for SIGHUP, and any program's for -1, is the same
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
FIRST_PAUSE, LONGEST_PAUSE = 5, 300  # seconds before a restart; doubled after every start without progress
POLL_SECONDS = 0.5  # between two checks of the launcher and the signals


@dataclass(frozen=True)
class Training:
    """The supervised training: the launcher's command line, and the run folder that shows its progress."""

    command: Sequence[str]
    run: Path
    steps: int
    stop_after: int | None = None  # probes without a gain
    choose: Callable[[bool], HostChoice] | None = None  # chooses among the hosts of the hostfile, reached by ssh

    @classmethod
    def from_command(cls, command: Sequence[str]) -> Training:
        """Return the training that a deepspeed command line starts; raise InputError for another one."""
        positions = [position for position, word in enumerate(command) if word.removeprefix("deepsiam.") in MODULES]
        if not positions:
            raise InputError(
                f"{' '.join(command) or 'no command'!r} starts no training: give, after --, "
                f"a deepspeed command line with --module {' or '.join(MODULES)}"
            )
        module, words_after = command[positions[0]], command[positions[0] + 1 :]
        recipe_words = [word for word in words_after if not word.startswith("-")]
        if not recipe_words:
            raise InputError(f"{module}: the recipe is missing: give {module} RECIPE [key=value ...]")
        recipe = load_recipe(MODULES[module.removeprefix("deepsiam.")], Path(recipe_words[0]), recipe_words[1:])
        command = [*command] if "--resume" in words_after else [*command, "--resume"]
        launch = Launch.from_command(command, positions[0])
        stop_after = getattr(recipe.checkpoint, "stop_after", None)  # of fine-tuning
        if not launch:
            return cls(command, recipe.run, recipe.steps, stop_after)
        launch.require_fewer()
        check_ranks(recipe, launch.ranks)
        choose_hosts = partial(choose, launch, recipe) if launch.by_ssh else None
        return cls(command, recipe.run, recipe.steps, stop_after, choose_hosts)

    def start(self, resumes: bool) -> Sequence[str]:
        """Return the command line of the next start: on all hosts or, from the first checkpoint on, on the fit ones.

        It is empty if too few hosts are fit. Raise InputError if a host is not fit before the first checkpoint.
        """
        if not self.choose:
            return self.command
        choice = self.choose(resumes)
        if choice.left_out and not resumes:
            host, reason = next(iter(choice.left_out.items()))
            more_hosts = f"; {len(choice.left_out)} hosts are not" if len(choice.left_out) > 1 else ""
            raise InputError(f"{host} is not fit: {reason}{more_hosts}: fix that, or shorten the hostfile")
        for host, reason in choice.left_out.items():
            _report(f"{host} is left out: {reason}")
        if choice.left_out:
            _report(f"{choice.ranks} of {choice.all_ranks} ranks can train")
        return choice.command

    def stopped_for_good(self) -> bool:
        """Return whether the run ended because its probes no longer gained."""
        newest = checkpoint.newest(self.run)
        return bool(self.stop_after and newest and checkpoint.read_state(newest).best.bad >= self.stop_after)

    def request_stop(self) -> None:
        """Make the training save and exit: it checks for the stop file at every step, on any host."""
        make_directory(self.run)
        with os_errors_as_input_errors(self.run / STOP_FILE, "write"):
            (self.run / STOP_FILE).touch()

    def step(self) -> int:
        """Return the step of the newest intact checkpoint, 0 before the first; raise InputError if all are damaged."""
        newest = checkpoint.newest(self.run)
        return checkpoint.read_state(newest).step if newest else 0


def supervise(
    training: Training, tries: int, signals: Sequence[int], sleep: Callable[[float], None] = time.sleep
) -> int:
    """Restart the training until it is finished, stopped on request, has bad input, or failed `tries` times in a row.

    A start fails if it produces no newer checkpoint. `signals` grows while this runs: the first signal makes the
    training save and exit, the second kills it. Return the exit code: 0 trained to the last step, RESUME stopped on
    request, else the launcher's last exit code (never 0).
    """
    step, failed = training.step(), 0
    while True:
        command = training.start(resumes=step > 0)
        if command:
            _report(f"step {step} of {training.steps}: starting {' '.join(command)}")
        code = _run(training, command, signals, sleep) if command else 1
        previous_step, step = step, training.step()
        failed = 0 if step > previous_step else failed + 1
        ended = f"step {step} of {training.steps}: ended with code {_explain(code, by_ssh=bool(training.choose))}"
        if code == BAD_INPUT or (code == INTERRUPTED and not signals):
            _report(f"{ended}: not starting again")
            return code
        if step >= training.steps:
            _report(f"{ended}: trained to the last step")
            return 0
        if code == 0 and training.stopped_for_good():
            _report(f"{ended}: trained until its probes no longer gained")
            return 0
        if failed == tries and not signals:
            starts = f"{tries} start{'s' * (tries > 1)}"
            _report(f"{ended}: giving up: no checkpoint after step {step} in {starts}; see the errors above")
            return code or 1
        if not signals:
            seconds = 0 if code == RESUME else pause(failed)
            _report(f"{ended}: starting again in {seconds} s")
            _wait(seconds, signals, sleep)
            if training.step() >= training.steps:  # another host's last checkpoint, seen late on a shared file system
                _report("trained to the last step")
                return 0
        if signals:
            _report(f"{ended}: stopped; the same command continues from step {step}")
            return RESUME


def pause(failed: int) -> int:
    """Return the seconds before a restart, after `failed` consecutive starts without progress."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2**failed)


def _run(training: Training, command: Sequence[str], signals: Sequence[int], sleep: Callable[[float], None]) -> int:
    """Run the launcher; return its exit code, as a shell reports it, after every process that it started has ended."""
    with os_errors_as_input_errors(Path(command[0]), "start it"):
        launcher = subprocess.Popen(command, start_new_session=True)  # its processes are found by the session
    handled = 0
    try:
        # WNOWAIT keeps the launcher as a zombie, so no new process can get its id, which is also the session's id
        while os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if len(signals) > handled:
                name = signal.Signals(signals[handled]).name
                handled += 1
                if handled == 1:
                    _report(f"{name}: asking the training to save and end; a second signal kills it")
                    try:
                        training.request_stop()
                    except InputError as error:
                        _report(f"{error}; the training continues until a second signal")
                else:
                    _report(f"{name} again: killing the training")
                    _kill(launcher.pid)
            sleep(POLL_SECONDS)
    finally:
        _kill(launcher.pid)
        with suppress(OSError):  # the folder may not be writable
            (training.run / STOP_FILE).unlink(missing_ok=True)
    code = launcher.wait()
    return code if code >= 0 else 128 - code


def _kill(session: int) -> None:
    # a restart needs the port and the devices of what is left
    if remaining := kill(session):
        _report(f"cannot kill {', '.join(map(str, remaining))}: the next start may find the port taken")


def _wait(seconds: float, signals: Sequence[int], sleep: Callable[[float], None]) -> None:
    while seconds > 0 and not signals:
        sleep(min(POLL_SECONDS, seconds))
        seconds -= POLL_SECONDS


def _explain(code: int, by_ssh: bool) -> str:
    """Return an exit code with its meaning.

    If signal n killed a process, shells make it 128 + n, and DeepSpeed's launcher, of a rank, 256 - n.
    """
    number = 256 - code if code > 192 else code - 128
    if code == SSH_FAILED:
        meaning = "ssh failed or lost a host" if by_ssh else ""
    else:
        cause = f"killed by {signal.Signals(number).name}" if number in set(signal.Signals) else ""
        meaning = MEANINGS.get(code, cause)
    return f"{code} ({meaning})" if meaning else str(code)


def _report(line: str) -> None:
    print(f"supervise: {line}", file=sys.stderr, flush=True)
