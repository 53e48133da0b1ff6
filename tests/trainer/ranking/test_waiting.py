"""How the threads of a command wait is set before torch is loaded, and not for ranks."""

import os
import subprocess
import sys

import pytest

AT_TORCH = """
import importlib, os, sys
class AtTorch:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, AtTorch())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("command", "variables", "policy"),
    [
        *((f"trainer.{name}", {}, "PASSIVE") for name in ("evaluate", "index", "mine", "search")),
        ("trainer.evaluate", {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
        ("trainer.index", {"RANK": "1"}, "None"),
        ("trainer.index", {"SLURM_STEP_NUM_TASKS": "4"}, "None"),
    ],
)
def test_threads_wait_passively_except_in_ranks(command: str, variables: dict[str, str], policy: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "RANK")}
    done = subprocess.run(
        [sys.executable, "-c", AT_TORCH, command], env=environment | variables, capture_output=True, text=True
    )
    assert done.stdout.strip() == policy, done.stderr
