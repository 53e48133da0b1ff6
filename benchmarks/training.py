"""Training by the launcher, as a user starts it, from a benchmark."""

import random
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from trainer.data import shard_data
from trainer.recipe import PretrainRecipe


def train(module: str, recipe: str, run: Path, settings: Mapping[str, object]) -> None:
    """Train `recipe` on two ranks into `run`, from where it was stopped; nothing to do where it is finished.

    Exits with the training's code where it fails: it has said why.
    """
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "-q", "--num_accelerators", "2"]
    port = ["--master_port", str(free_port())]  # another training may run beside a benchmark of an hour
    overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
    run_or_exit([*launcher, *port, "--module", module, recipe, "--resume", *overrides])


def tokens_a_step(recipe: PretrainRecipe) -> float:
    """Tokens of an optimizer step: the mean over the first 200 micro-batches of the run's own order."""
    order = shard_data(recipe).order
    sample = [batch.micro_batch.tokens for batch in islice(order.stream(order.start(), 0, 1), 200)]
    return sum(sample) / 200 * recipe.batch.micro_batches


def file_name(label: str) -> str:
    """The name of a run's folder, of what a table or a figure calls it."""
    return label.lower().replace(", ", "-").replace(" ", "-")


def run_or_exit(command: Sequence[str]) -> None:
    """Runs a command to its end; exits with its code where it fails: it has said why."""
    code = subprocess.run(command).returncode
    if code:
        raise SystemExit(code)


def free_port() -> int:
    """A port that nothing listens at, below those that the system gives to connections of its own choice."""
    for port in random.sample(range(20000, 29000), 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise OSError("no port from 20000 to 28999 is free")
