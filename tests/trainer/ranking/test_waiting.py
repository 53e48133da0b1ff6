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
importlib.import_module(sys.argv[1]).main(sys.argv[2:])
"""
WORDS = {  # that parse
    "ask": "--collection=c --model=m --out=o",
    "evaluate": "--collection=c --split=test --system=bm25 --out=o",
    "index": "bm25 --collection=c --out=o",
    "mine": "--collection=c --split=test --system=bm25 --out=o",
    "search": "i query",
}


@pytest.mark.parametrize(
    ("command", "variables", "policy"),
    [
        *((name, {}, "PASSIVE") for name in WORDS),
        ("evaluate", {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
        ("index", {"RANK": "1"}, "None"),
        ("index", {"SLURM_STEP_NUM_TASKS": "4"}, "None"),
    ],
)
def test_threads_wait_passively_except_in_ranks(command: str, variables: dict[str, str], policy: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "RANK")}
    words = [sys.executable, "-c", AT_TORCH, f"deepsiam.trainer.{command}", *WORDS[command].split()]
    done = subprocess.run(words, env=environment | variables, capture_output=True, text=True)
    assert done.stdout.strip() == policy, done.stderr
