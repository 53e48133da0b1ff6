"""How long a checkpoint takes to save and to load, compared with torch.save and torch.load of as many bytes.

    python -m benchmarks.saving [--hidden N] [--layers N] [--rounds N] [--out PATH]     (a minute)

One process, ZeRO-1 in fp32: weights and both Adam moments. deepsiam writes DeepSpeed's files and the weights again,
syncs them to disk, hashes and renames; loading checks the hashes first. torch.save's file is synced too.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.side_by_side import alternate, in_words, ratios, spread, write
from data_prep.common.argument_types import positive
from data_prep.common.errors import exit_on_input_error
from trainer.checkpoints import checkpoint
from trainer.checkpoints.checkpoint import State
from trainer.data.cursor import Cursor
from trainer.engine.engine import Engine
from trainer.engine.world import World, join
from trainer.recipe.schema import CheckpointConfig, PretrainRecipe
from trainer.recipe.yaml_file import build


def make_engine(hidden: int, layers: int) -> Engine:
    """Make an engine of a plain stack of matrices, stepped once so that the Adam moments exist."""
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
    model = nn.Sequential(*(nn.Linear(hidden, hidden) for _ in range(layers)))
    engine = Engine(model, build(PretrainRecipe, values, "benchmark"), World.from_environment())
    engine.deepspeed.backward(engine.deepspeed(torch.ones(1, hidden)).sum())
    engine.deepspeed.step()
    return engine


def save(engine: Engine, folder: Path) -> float:
    """Seconds to save a checkpoint."""
    start = time.perf_counter()
    checkpoint.save(folder, engine, State(1, Cursor([]), 1, {}), {}, CheckpointConfig())
    return time.perf_counter() - start


def load(engine: Engine, folder: Path) -> float:
    """Seconds to find, verify and load the newest checkpoint."""
    start = time.perf_counter()
    newest = checkpoint.newest(folder)
    assert newest is not None
    checkpoint.resume(engine, newest, saved_by=1)
    return time.perf_counter() - start


def torch_save(tensors: dict[str, torch.Tensor], path: Path) -> float:
    """Seconds of torch.save and fsync."""
    start = time.perf_counter()
    with open(path, "wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def torch_load(path: Path) -> float:
    """Seconds of torch.load."""
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
    results: dict[str, Any] = {"bytes": size}
    for what, seconds in {"save": saving, "load": loading}.items():
        for name, values in seconds.items():
            print(in_words(f"{what} {size / 1e6:,.0f} MB: {name}", spread(values), "s"))
        results[what] = {"seconds": seconds, "deepsiam / torch": ratios(seconds["deepsiam"], seconds["torch"])}
        print(in_words(f"{what}: deepsiam / torch", results[what]["deepsiam / torch"]))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=1024, help="width of the matrices (%(default)s)")
    parser.add_argument("--layers", type=int, default=16, help="number of matrices (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, help="repetitions (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks/saving.json"), help="(%(default)s)")
    options = parser.parse_args()
    join(World.from_environment())
    with tempfile.TemporaryDirectory() as folder:
        results = measure(make_engine(options.hidden, options.layers), Path(folder), options.rounds)
    dist.destroy_process_group()
    write(options.out, results)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.saving"):
        main()
