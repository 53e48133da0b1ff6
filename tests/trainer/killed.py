"""Kill a training in the middle of a step."""

import subprocess
from pathlib import Path

import pytest

from tests import toy
from tests.warm import PATIENCE


def kill_at(step: int, ranks: int, module: str, recipe: Path, *arguments: object) -> None:
    """Start a training; send SIGKILL to all its processes when it prints a step, while it trains the next one.

    The recipe must log every step, and only this training's processes may have its path in their commands.
    """
    command = toy.launch_command(ranks, module, recipe, *arguments)
    process = subprocess.Popen(
        command, cwd=toy.ROOT, stdout=subprocess.PIPE, text=True, env=toy.environment(), start_new_session=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            break
    else:
        pytest.fail(f"the run ended before step {step}")
    subprocess.run(["pkill", "-KILL", "-f", str(recipe)], check=True)
    process.wait(timeout=PATIENCE)
