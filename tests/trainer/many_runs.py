"""Pre-training runs one after the other in the ranks of one launch: starting processes takes longer than small runs do.

fp16 runs on any CPU here: PyTorch computes it in software where the processor has none, too slowly for real use.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from data_prep.files import make_directory
from tests import toy
from trainer import checkpoint
from trainer.engine import World, join
from trainer.launch import _at_once, _from_rank_0, _record
from trainer.loop import Run
from trainer.pretrain import build
from trainer.recipe import PretrainRecipe, load


def train(ranks: int, runs: Sequence[Sequence[object]], folder: Path) -> str:
    """Trains each [RECIPE, key=value, ...], from its newest checkpoint where it has one; what was printed."""
    (folder / "runs.json").write_text(json.dumps([list(map(str, run)) for run in runs]))
    done = toy.launch(ranks, "tests.trainer.many_runs", folder / "runs.json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def ds_config(folder: Path, name: str, power: int) -> Path:
    """A file of ds_configs/, where it is fp16's with another loss scale to begin with, 2 to the `power`."""
    values = json.loads((toy.ROOT / "ds_configs" / f"{name}.json").read_text())
    if "fp16" in values:
        values["fp16"]["initial_scale_power"] = power
    (folder / f"{name}.json").write_text(json.dumps(values))
    return folder / f"{name}.json"


class _Yes:
    """An operator of PyTorch's whose answer is True, and everything else about it as it was."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)


def main() -> None:
    """What each rank does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--local_rank")
    torch.ops.mkldnn._is_mkldnn_fp16_supported = _Yes(torch.ops.mkldnn._is_mkldnn_fp16_supported)
    world = World.from_environment()
    with _at_once():
        join(world)
        for recipe, *overrides in json.loads(parser.parse_args().runs.read_text()):
            job = build(load(PretrainRecipe, Path(recipe), overrides))
            newest = _from_rank_0(checkpoint.newest(job.recipe.run))
            if world.rank == 0:
                make_directory(job.recipe.run)
                _record(job, world)
            Run(job, world, newest).train()


if __name__ == "__main__":
    main()
