"""How long a checkpoint takes to save and to load, compared with torch.save and torch.load of as many bytes.

    python -m benchmarks.scaling.saving [--hidden N] [--layers N] [--rounds N] [--out PATH]  (a minute)
    python -m benchmarks.scaling.saving --against DIR                                        (a minute a code and round)

One process, ZeRO-1 in fp32: weights and both Adam moments. deepsiam writes DeepSpeed's files and a second copy of the
weights, hashes them, syncs them to disk, and renames; loading checks the hashes first. torch.save's file is synced too.

With `--against`, this code and the code in another folder (`git worktree add DIR COMMIT`) are measured in turn, with
this Python: each round starts a process for each code, and each compares itself with torch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.common.side_by_side import Values, alternate, in_words, ratios, spread, write
from benchmarks.scaling.start_up import HERE, THERE
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.checkpoint import State
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import CheckpointConfig, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests.ports import free_port


class Stack(nn.Sequential):
    """A plain stack of layers, none of which a base has."""

    from_base: frozenset[str] = frozenset()


def make_engine(hidden: int, layers: int) -> Engine:
    """Make an engine for a plain stack of matrices, and take one step so that the Adam moments exist."""
    values = {
        "run": "none",
        "steps": 1,
        "deepspeed": "cpu",
        "data": {"shards": "none"},
        "batch": {"size": 1, "micro": 1},
        "trunk": {},
        "method": {"name": "mlm"},
        "optimizer": {"lr": 1e-3},
    }
    model = Stack(*(nn.Linear(hidden, hidden) for _ in range(layers)))
    engine = Engine(model, build(PretrainRecipe, values, "benchmark"), World.from_environment())
    engine.deepspeed.backward(engine.deepspeed(torch.ones(1, hidden)).sum())
    engine.deepspeed.step()
    return engine


def save(engine: Engine, folder: Path) -> float:
    """Return the seconds to save a checkpoint."""
    start = time.perf_counter()
    checkpoint.save(folder, engine, State(1, Cursor([]), 1, {}), {}, CheckpointConfig())
    return time.perf_counter() - start


def load(engine: Engine, folder: Path) -> float:
    """Return the seconds to find, verify and load the newest checkpoint."""
    start = time.perf_counter()
    newest = checkpoint.newest(folder)
    assert newest is not None
    checkpoint.resume(engine, newest, saved_by=1)
    return time.perf_counter() - start


def torch_save(tensors: dict[str, torch.Tensor], path: Path) -> float:
    """Return the seconds of torch.save and fsync."""
    start = time.perf_counter()
    with open(path, "wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def torch_load(path: Path) -> float:
    """Return the seconds of torch.load."""
    start = time.perf_counter()
    torch.load(path, weights_only=True)
    return time.perf_counter() - start


def measure(engine: Engine, folder: Path, rounds: int) -> dict[str, Any]:
    """Measure seconds and ratios of saving and loading, and print them."""
    save(engine, folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    tensors = {str(i): torch.rand(size // 16) for i in range(4)}
    rival = folder / "rival.pt"
    saving = alternate({"deepsiam": lambda: save(engine, folder), "torch": lambda: torch_save(tensors, rival)}, rounds)
    loading = alternate({"deepsiam": lambda: load(engine, folder), "torch": lambda: torch_load(rival)}, rounds)
    return summary(size, {"save": saving, "load": loading}, [("deepsiam", "torch")])


def measure_codes(here: Path, there: Path, rounds: int, sizes: Sequence[str]) -> dict[str, Any]:
    """Measure the code in two folders in turn, each in its own processes; `sizes` are the options for them."""
    seconds: dict[str, Values] = {"save": {}, "load": {}}
    for _ in range(rounds):
        for name, code in {HERE: here, THERE: there}.items():
            measured = measure_code(code, sizes)
            for what, values in seconds.items():
                for rival, times in measured[what]["seconds"].items():
                    title = name if rival == "deepsiam" else f"{rival} beside {name}"
                    values.setdefault(title, []).extend(times)
    pairs = [(HERE, f"torch beside {HERE}"), (THERE, f"torch beside {THERE}"), (HERE, THERE)]
    return summary(measured["bytes"], seconds, pairs)


def measure_code(code: Path, sizes: Sequence[str]) -> dict[str, Any]:
    """Run one round of this benchmark in a new process, with the code in a folder; return its results."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "saving.json"
        command = [sys.executable, "-m", "benchmarks.scaling.saving", *sizes, "--rounds", "1", "--out", str(out)]
        environment = {**os.environ, "MASTER_PORT": str(free_port())}
        done = subprocess.run(command, cwd=code, env=environment, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise InputError(f"{code}: {' '.join(command)} ended with code {done.returncode}")
        results: dict[str, Any] = json.loads(out.read_text())
    return results


def summary(size: int, measured: Mapping[str, Values], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return all seconds and the ratio of each pair of rivals within the rounds, and print their spread."""
    results: dict[str, Any] = {"bytes": size}
    for what, seconds in measured.items():
        results[what] = {"seconds": seconds}
        for name, values in seconds.items():
            print(in_words(f"{what} {size / 1e6:,.0f} MB: {name}", spread(values), "s"))
        for over, under in pairs:
            results[what][f"{over} / {under}"] = ratio = ratios(seconds[over], seconds[under])
            print(in_words(f"{what}: {over} / {under}", ratio))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=1024, help="width of the matrices (%(default)s)")
    parser.add_argument("--layers", type=int, default=16, help="number of matrices (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, help="repetitions (%(default)s)")
    parser.add_argument("--against", type=Path, help="a folder with another commit's code")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/saving.json"), help="(%(default)s)")
    options = parser.parse_args()
    if options.against:
        sizes = ["--hidden", str(options.hidden), "--layers", str(options.layers)]
        results = measure_codes(Path.cwd(), options.against.resolve(), options.rounds, sizes)
    else:
        join(World.from_environment())
        with tempfile.TemporaryDirectory() as folder:
            results = measure(make_engine(options.hidden, options.layers), Path(folder), options.rounds)
        dist.destroy_process_group()
    write(options.out, results)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.scaling.saving"):
        main()
