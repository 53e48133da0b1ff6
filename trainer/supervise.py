"""Keep a training going: start the launcher, start it again after a fault, stop when nothing comes of it.

python -m trainer.supervise [--tries N] -- deepspeed [launcher options] --module trainer.pretrain RECIPE [key=value ...]

What the launcher's exit code says is not enough: it is 0 too when the launcher's own child was killed, and the codes of
other hosts may be lost. So a training has ended well when its last step's checkpoint is whole, and made progress when
there is a newer one than at the start.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from data_prep.errors import InputError, exit_on_input_error
from data_prep.files import make_directory, os_errors_as_input_errors
from trainer import checkpoint
from trainer.faults import HUNG, RESUME, STOP_FILE
from trainer.recipe import FinetuneRecipe, PretrainRecipe, Recipe
from trainer.recipe import load as load_recipe

BAD_INPUT, INTERRUPTED = 2, 130
MEANINGS = {
    BAD_INPUT: "bad input",
    RESUME: "told to stop, and saved",
    HUNG: "no step for too long",
    INTERRUPTED: "interrupted",
}

MODULES: dict[str, type[Recipe]] = {"trainer.pretrain": PretrainRecipe, "trainer.finetune": FinetuneRecipe}
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
FIRST_PAUSE, LONGEST_PAUSE = 5, 300  # seconds before a new start; doubled for every start without progress
LOOK_EVERY = 0.5  # seconds between two looks at the launcher and the signals


@dataclass(frozen=True)
class Training:
    """What is supervised: the launcher's command line, and where its run shows how far it is."""

    command: Sequence[str]
    run: Path
    steps: int

    @classmethod
    def of(cls, command: Sequence[str]) -> Training:
        """The training that a deepspeed command line starts; raises InputError where it starts none of ours."""
        found = [position for position, word in enumerate(command) if word in MODULES]
        if not found:
            raise InputError(
                f"{' '.join(command) or 'no command'!r} starts no training: give, after --, "
                f"a deepspeed command line with --module {' or '.join(MODULES)}"
            )
        module, rest = command[found[0]], command[found[0] + 1 :]
        plain = [word for word in rest if not word.startswith("-")]
        if not plain:
            raise InputError(f"{module}: no recipe follows it: give {module} RECIPE [key=value ...]")
        recipe = load_recipe(MODULES[module], Path(plain[0]), plain[1:])
        return cls([*command] if "--resume" in rest else [*command, "--resume"], recipe.run, recipe.steps)

    def ask_to_stop(self) -> None:
        """Have the training save and end: it looks for this file at every step, whatever hosts it runs on."""
        make_directory(self.run)
        with os_errors_as_input_errors(self.run / STOP_FILE, "write"):
            (self.run / STOP_FILE).touch()

    def step(self) -> int:
        """The step of the newest whole checkpoint; 0 before the first. InputError where every one is damaged."""
        newest = checkpoint.newest(self.run)
        return checkpoint.read_state(newest).step if newest else 0


def supervise(
    training: Training, tries: int, signals: Sequence[int], sleep: Callable[[float], None] = time.sleep
) -> int:
    """Start the training until it is trained, told to stop, given bad input, or `tries` starts brought no progress.

    `signals` grows while this runs: the first in it makes the training save and end, the second kills it.
    Returns the exit code: 0 trained to the last step, RESUME told to stop, else the launcher's last one (never 0).
    """
    step, idle = training.step(), 0
    while True:
        _say(f"step {step} of {training.steps}: starting {' '.join(training.command)}")
        code = _run(training, signals, sleep)
        before, step = step, training.step()
        idle = 0 if step > before else idle + 1
        ended = f"step {step} of {training.steps}: ended with code {_explained(code)}"
        if code == BAD_INPUT or (code == INTERRUPTED and not signals):
            _say(f"{ended}: not starting again")
            return code
        if step >= training.steps:
            _say(f"{ended}: trained to the last step")
            return 0
        if idle == tries and not signals:
            _say(f"{ended}: giving up: no checkpoint after step {step} in {_starts(tries)}; the reason stands above")
            return code or 1
        if not signals:
            seconds = 0 if code == RESUME else pause(idle)
            _say(f"{ended}: starting again in {seconds} s")
            _wait(seconds, signals, sleep)
        if signals:
            _say(f"{ended}: stopped; the same command goes on from step {step}")
            return RESUME


def pause(idle: int) -> int:
    """Seconds before a new start when the last `idle` ones brought no progress."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2**idle)


def _run(training: Training, signals: Sequence[int], sleep: Callable[[float], None]) -> int:
    """The launcher's exit code, as a shell would say it, once nothing of what it started runs any more."""
    with os_errors_as_input_errors(Path(training.command[0]), "start it"):
        launcher = subprocess.Popen(training.command, start_new_session=True)  # what it starts is known by its session
    passed_on = 0
    try:
        # not reaped yet: while the launcher is a zombie its number, the session's too, is no other process's
        while os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if len(signals) > passed_on:
                name = signal.Signals(signals[passed_on]).name
                passed_on += 1
                if passed_on == 1:
                    _say(f"{name}: telling the training to save and end; a second signal kills it")
                    try:
                        training.ask_to_stop()
                    except InputError as error:
                        _say(f"{error}; it trains on until a second signal")
                else:
                    _say(f"{name} again: killing the training")
                    _kill(launcher.pid)
            sleep(LOOK_EVERY)
    finally:
        _kill(launcher.pid)
        with suppress(OSError):  # where it could not be written
            (training.run / STOP_FILE).unlink(missing_ok=True)
    code = launcher.wait()
    return code if code >= 0 else 128 - code


def _kill(session: int) -> None:
    """Kill what is left of a session: a new start needs its port and its devices."""
    for _ in range(300):
        left = _processes(session)
        if not left:
            return
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.1)  # psutil's own waiting would reap the launcher, and its exit code with it
    _say(f"cannot kill {', '.join(str(process.pid) for process in left)}: the next start may find the port taken")


def _processes(session: int) -> list[psutil.Process]:
    """The living processes of a session."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _wait(seconds: float, signals: Sequence[int], sleep: Callable[[float], None]) -> None:
    """Sleep, but not past a signal."""
    while seconds > 0 and not signals:
        sleep(min(LOOK_EVERY, seconds))
        seconds -= LOOK_EVERY


def _explained(code: int) -> str:
    """An exit code and what it means; a rank that was killed by signal n makes the launcher's 256 - n."""
    number = 256 - code if code > 192 else code - 128
    killer = signal.Signals(number).name if number in set(signal.Signals) else None
    meaning = MEANINGS.get(code) or (f"killed by {killer}" if killer else None)
    return f"{code} ({meaning})" if meaning else str(code)


def _starts(count: int) -> str:
    return f"{count} start{'s' * (count > 1)}"


def _say(line: str) -> None:
    print(f"supervise: {line}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and supervise what it names; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="trainer.supervise",
        usage="%(prog)s [--tries N] -- deepspeed [launcher options] --module trainer.pretrain RECIPE [key=value ...]",
        description="Start a training, and start it again after a fault for as long as it makes progress.",
    )
    parser.add_argument("--tries", type=int, default=3, help="starts in a row without a newer checkpoint (default 3)")
    tries = parser.parse_args(words[:end]).tries
    if tries < 1:
        raise InputError(f"--tries {tries}: give 1 or more")
    training = Training.of(words[end + 1 :])
    signals: list[int] = []
    for number in STOP_SIGNALS:
        signal.signal(number, lambda received, _: signals.append(received))
    return supervise(training, tries, signals)


if __name__ == "__main__":
    with exit_on_input_error("supervise"):
        sys.exit(main())
