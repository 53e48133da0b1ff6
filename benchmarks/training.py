"""Training by the launcher, as a user starts it, from a benchmark."""

import subprocess
import sys
from pathlib import Path


def train(module: str, recipe: str, run: Path, settings: dict[str, object]) -> None:
    """Train `recipe` on two ranks into `run`, from where it was stopped; nothing to do where it is finished.

    Exits with the training's code where it fails: it has said why.
    """
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "-q", "--num_accelerators", "2", "--module"]
    overrides = [f"{key}={value}" for key, value in {"run": run, **settings}.items()]
    code = subprocess.run([*launcher, module, recipe, "--resume", *overrides]).returncode
    if code:
        raise SystemExit(code)
