"""Pre-training runs one after the other in the ranks of one launch: starting processes takes longer than small runs do.

deepspeed ... --module tests.trainer.many_runs RUNS.json, a list of [RECIPE, key=value, ...]
"""

import argparse
import json
from pathlib import Path

from trainer.engine import World, join
from trainer.launch import _at_once, _record
from trainer.loop import Run
from trainer.pretrain import build
from trainer.recipe import PretrainRecipe, load


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--local_rank")
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
