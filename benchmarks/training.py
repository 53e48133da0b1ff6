"""Start training from a benchmark as a user does, by the launcher."""

import random
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from trainer.data.open_data import shard_data
from trainer.recipe.schema import PretrainRecipe


def train(module: str, recipe: str, run: Path, settings: Mapping[str, object]) -> None:
    """Train `recipe` on two ranks into `run`: resume a stopped run, and do nothing for a finished one.

    Exit with the training's code where it fails, after its own message.
    """
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "-q", "--num_accelerators", "2"]
    port = ["--master_port", str(free_port())]  # another training may be running
    overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
    run_or_exit([*launcher, *port, "--module", module, recipe, "--resume", *overrides])


def tokens_a_step(recipe: PretrainRecipe) -> float:
    """Estimate the tokens of an optimizer step by the first 200 micro-batches in the run's own order."""
    order = shard_data(recipe).order
    sample = [batch.micro_batch.tokens for batch in islice(order.stream(order.start(), 0, 1), 200)]
    return sum(sample) / 200 * recipe.batch.micro_batches


def file_name(label: str) -> str:
    """Turn the label of a run in a table or figure into its folder's name."""
    return label.lower().replace(", ", "-").replace(" ", "-")


def run_or_exit(command: Sequence[str]) -> None:
    """Run a command to its end; exit with its code where it fails, after its own message."""
    code = subprocess.run(command).returncode
    if code:
        raise SystemExit(code)


def free_port() -> int:
    """Find a port that nothing listens at, below the system's range of ephemeral ports."""
    for port in random.sample(range(20000, 29000), 1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise OSError("no port from 20000 to 28999 is free")
