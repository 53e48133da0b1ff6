"""Pre-training runs one after the other in the ranks of one launch: starting processes takes longer than small runs do.

deepspeed ... --module tests.trainer.many_runs RUNS.json, a list of [RECIPE, key=value, ...]

fp16 runs on any CPU here: PyTorch computes it in software where the processor has none, too slowly for real use.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from trainer.engine import World, join
from trainer.launch import _at_once, _record
from trainer.loop import Run
from trainer.pretrain import build
from trainer.recipe import PretrainRecipe, load


class _Yes:
    """An operator of PyTorch's whose answer is True, and everything else about it as it was."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--local_rank")
    torch.ops.mkldnn._is_mkldnn_fp16_supported = _Yes(torch.ops.mkldnn._is_mkldnn_fp16_supported)
    world = World.from_environment()
    with _at_once():
        join(world)
        for recipe, *overrides in json.loads(parser.parse_args().runs.read_text()):
            job = build(load(PretrainRecipe, Path(recipe), overrides))
            if world.rank == 0:
                _record(job, world).close()
            Run(job, world, None).train()


if __name__ == "__main__":
    main()
