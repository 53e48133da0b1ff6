"""How the threads of a command wait is set before torch is loaded, and not for ranks."""

import json
import os
import subprocess
import sys

AT_TORCH = """
import importlib, json, os, sys
import numpy, pydantic, yaml  # before the forks
class AtTorch:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, AtTorch())
for command, words, variables, _ in json.loads(sys.argv[1]):
    if not os.fork():
        os.environ.update(variables)
        importlib.import_module(f"deepsiam.trainer.{command}").main(words.split())
    os.wait()
"""
INDEX = "bm25 --collection=c --out=o"
ROWS = [  # a command, words that parse, variables, the policy
    ("ask", "--collection=c --model=m --out=o", {}, "PASSIVE"),
    ("evaluate", "--collection=c --split=test --system=bm25 --out=o", {}, "PASSIVE"),
    ("index", INDEX, {}, "PASSIVE"),
    ("mine", "--collection=c --split=test --system=bm25 --out=o", {}, "PASSIVE"),
    ("search", "i query", {}, "PASSIVE"),
    ("index", INDEX, {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
    ("index", INDEX, {"RANK": "1"}, "None"),
    ("index", INDEX, {"SLURM_STEP_NUM_TASKS": "4"}, "None"),
]


def test_threads_wait_passively_except_in_ranks() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "RANK")}
    command = [sys.executable, "-c", AT_TORCH, json.dumps(ROWS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [policy for *_, policy in ROWS], done.stderr
