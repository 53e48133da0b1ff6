"""Training by the launcher, as a user starts it, from a benchmark."""

import subprocess
import sys
from pathlib import Path


def train(module: str, recipe: str, run: Path, settings: dict[str, object]) -> None:
    """Train `recipe` on two ranks into `run`, from where it was stopped; nothing to do where it is finished."""
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "-q", "--num_accelerators", "2", "--module"]
    overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
    subprocess.run([*launcher, module, recipe, "--resume", *overrides], check=True)
