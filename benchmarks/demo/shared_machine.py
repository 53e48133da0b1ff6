"""What the demo's commands cost on two cores where another program keeps one busy: `make demo` must have run.

    python -m benchmarks.demo.shared_machine [--rounds 3] [--out PATH]          (some two minutes a round on two cores)

Each command takes its turn alone and beside a busy process, and both again with threads that first spin as long as
OpenMP's by default (commands that are not ranks wait passively). The results are ratios of seconds to those of the
first turn.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.side_by_side import Values, alternate, in_words, ratios, write
from benchmarks.common.training import launcher
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error

ALONE, BESIDE = "alone", "beside a busy process"
SPINNING, SPINNING_BESIDE = "alone, spinning", "beside it, spinning"
COLLECTION, ENCODER, STEPS = "data/demo/collection", "runs/demo/from_seed", 30


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands to time: training on two ranks, and ranking in one process; `folder` takes their output."""
    train = [*launcher(2), "--module"]
    short = [f"steps={STEPS}", f"checkpoint.every={STEPS}", f"run={folder}/run"]
    systems = ["--system", "bm25", "--system", f"mine={ENCODER}"]
    ranked = ["--collection", COLLECTION, "--split", "test", "--out", f"{folder}/results.json"]
    return {
        "pretrain": [*train, "trainer.pretrain", "recipes/demo_seed.yaml", *short],
        "finetune": [*train, "trainer.finetune", "recipes/demo_siamese_random.yaml", *short],
        "evaluate": [sys.executable, "-m", "trainer.evaluate", *systems, *ranked],
    }


@contextmanager
def busy() -> Iterator[None]:
    """Keep one core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def seconds(name: str, *, beside: bool, variables: Mapping[str, str]) -> float:
    """Run a command in a folder of its own; return how long it took."""
    with tempfile.TemporaryDirectory() as folder, busy() if beside else nullcontext():
        began = time.perf_counter()
        command = commands(Path(folder))[name]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        taken = time.perf_counter() - began
    if done.returncode:
        raise InputError(f"{' '.join(command)} ended with code {done.returncode}: {done.stderr.strip()[-500:]}")
    return taken


def measure(name: str, rounds: int) -> Values:
    """Time a command in its four turns, in every round."""
    spin = {"GOMP_SPINCOUNT": "300000"}  # GNU's default, where no policy is set
    turns = {ALONE: (False, {}), BESIDE: (True, {}), SPINNING: (False, spin), SPINNING_BESIDE: (True, spin)}
    return alternate(
        {turn: partial(seconds, name, beside=beside, variables=own) for turn, (beside, own) in turns.items()}, rounds
    )


def summary(measured: Mapping[str, Values]) -> dict[str, Any]:
    """Return the seconds, and the ratios to the turn alone in each round, of every command and of all together."""
    turns = next(iter(measured.values()))
    every = {turn: [sum(one) for one in zip(*(own[turn] for own in measured.values()), strict=True)] for turn in turns}
    return {
        name: {"seconds": own, **{turn: ratios(own[turn], own[ALONE]) for turn in turns if turn != ALONE}}
        for name, own in {**measured, "together": every}.items()
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=positive, default=3, help="repetitions (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/shared_machine.json"), help="(%(default)s)")
    chosen = parser.parse_args(argv)
    for needed in (COLLECTION, ENCODER):
        if not Path(needed).is_dir():
            raise InputError(f"{needed}: does not exist here: run make demo first")
    results = summary({name: measure(name, chosen.rounds) for name in commands(Path())})
    for name, own in results.items():
        for turn in (BESIDE, SPINNING, SPINNING_BESIDE):
            print(in_words(f"{name}, {turn}: times the seconds alone", own[turn]))
    write(chosen.out, results)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.demo.shared_machine"):
        main()
