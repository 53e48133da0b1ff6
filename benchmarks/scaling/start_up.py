"""Measure the start of a training: CPU time and wall time from the command to the first step, and on to the end.

    python -m benchmarks.scaling.start_up [--against DIR] [--rounds N] [--out PATH]          (a minute a code and round)

A tiny SEED pre-training of one step on two CPU ranks, in parts:

    launcher   CPU seconds of DeepSpeed's launcher, which starts two processes that do nothing
    imports    CPU seconds of one rank's imports
    rest       CPU seconds of everything else on both ranks: data, engine, the step, its checkpoint
    whole      CPU seconds of the whole command: the launcher, two ranks' imports, the rest
    wall       seconds from the command to the first step's line
    end        seconds from that line to the end of the command, with a checkpoint in between

With `--against`, this code and the code in another folder (`git worktree add DIR COMMIT`) are measured in turn, with
this Python.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import yaml

from benchmarks.common.made_up_shards import write_shards
from benchmarks.common.side_by_side import Values, in_words, ratios, spread, write
from benchmarks.common.training import launcher
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error

RANKS = 2
HERE, THERE = "this code", "the other"
PARTS = ("launcher", "imports", "rest", "whole", "wall", "end")
RECIPE: dict[str, Any] = {
    "steps": 1,
    "log_every": 1,
    "deepspeed": "cpu",
    "data": {"lanes": 2, "window": 1},
    "batch": {"size": 4, "micro": 2},
    "trunk": {
        "model_type": "bert",
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    },
    "method": {"name": "seed", "max_tokens": 64},
    "optimizer": {"lr": 1e-4},
}


def measure(code: Path, folder: Path) -> dict[str, float]:
    """Measure every part once for the code in the folder `code`; `folder` has recipe and data."""
    command = launcher(RANKS)
    values = {
        "launcher": cpu(code, [*command, "--no_python", "--no_local_rank", "true"])[0],
        "imports": cpu(code, [sys.executable, "-c", "import trainer.pretrain"])[0],
    }
    with tempfile.TemporaryDirectory(dir=folder) as run:
        command += ["--module", "trainer.pretrain", str(folder / "recipe.yaml"), f"run={run}/run"]
        values["whole"], values["wall"], values["end"] = cpu(code, command)
    return {**values, "rest": rest(values)}


def rest(values: dict[str, float]) -> float:
    """Return what remains of the whole without the launcher and the imports of all ranks."""
    return values["whole"] - values["launcher"] - RANKS * values["imports"]


def cpu(code: Path, command: Sequence[str]) -> tuple[float, float, float]:
    """Run a command in a folder; return its CPU seconds, and its seconds before and after the first step's line."""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}  # waiting threads use CPU time
    before, start = cpu_of_children(), time.perf_counter()
    stepped = start
    with subprocess.Popen(command, cwd=code, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("step 1/"):
                stepped = time.perf_counter()
    if process.returncode:
        raise InputError(f"{code}: {' '.join(command)} ended with code {process.returncode}")
    return cpu_of_children() - before, stepped - start, time.perf_counter() - stepped


def cpu_of_children() -> float:
    """Return the CPU seconds, user and system, of all child processes that have ended."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def summary(measured: dict[str, Values]) -> dict[str, Any]:
    """Return min, median and max of every part of each code and, for two codes, of the ratio within each round."""
    results: dict[str, Any] = {"seconds": measured}
    for name, parts in measured.items():
        results[name] = {part: spread(values) for part, values in parts.items()}
    if THERE in measured:
        here, there = measured[HERE], measured[THERE]
        results[f"{HERE} / {THERE}"] = {part: ratios(here[part], there[part]) for part in PARTS}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", type=Path, help="a folder with another commit's code")
    parser.add_argument("--rounds", type=positive, default=5, help="repetitions (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/start_up.json"), help="(%(default)s)")
    options = parser.parse_args()
    codes = {HERE: Path.cwd()} | ({THERE: options.against.resolve()} if options.against else {})
    measured: dict[str, Values] = {name: {part: [] for part in PARTS} for name in codes}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shards(folder, 1_000_000)  # a shard for each lane
        recipe = {**RECIPE, "run": "set by each run", "data": {**RECIPE["data"], "shards": str(folder / "shards")}}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        for _ in range(options.rounds):
            for code in codes:
                for part, value in measure(codes[code], folder).items():
                    measured[code][part].append(value)
    results = summary(measured)
    for part in PARTS:
        for code in [name for name in results if name != "seconds"]:
            print(in_words(f"{part}: {code}", results[code][part], "" if "/" in code else "s"))
    write(options.out, results)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.scaling.start_up"):
        main()
