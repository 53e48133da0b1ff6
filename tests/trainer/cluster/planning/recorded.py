"""Record the torch.distributed calls of DeepSpeed's ranks in one optimizer step of several runs, in one launch."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.jobs import pretraining
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from deepsiam.trainer.training.run.command import skip_interpreter_shutdown
from deepsiam.trainer.training.run.loop import Run
from tests import toy

KINDS = {"all_reduce": "all_reduce", "all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}
STEP = 3  # the recorded step: ZeRO-3 traces the order of modules in the first steps
Call = tuple[str, int, int]  # kind, elements of the whole tensor, bytes per element

calls: list[Call] = []


def record(ranks: int, runs: Sequence[Sequence[object]], folder: Path) -> list[list[Call]]:
    """Train each [RECIPE, key=value, ...]; return rank 0's calls between the starts of two steps."""
    (folder / "runs.json").write_text(json.dumps([list(map(str, run)) for run in runs]))
    done = toy.launch(ranks, "tests.trainer.cluster.planning.recorded", folder / "runs.json")
    assert done.returncode == 0, done.stderr
    return [[(kind, n, width) for kind, n, width in run] for run in json.loads((folder / "calls.json").read_text())]


def _recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(*arguments: Any, **options: Any) -> Any:
        tensors = [value for value in (*arguments, *options.values()) if isinstance(value, torch.Tensor)]
        whole = max(tensors, key=lambda tensor: tensor.numel())
        calls.append((KINDS[name], whole.numel(), whole.element_size()))
        return function(*arguments, **options)

    return recorded


def main() -> None:
    """Train the runs; called by every rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--local_rank")
    path = parser.parse_args().runs
    world = World.from_environment()
    for name in KINDS:
        setattr(dist, name, _recording(name, getattr(dist, name)))
    step, found = Engine.step, []

    def marked(self: Engine, *arguments: Any, **options: Any) -> Any:
        calls.append(("step", 0, 0))
        return step(self, *arguments, **options)

    Engine.step = marked  # type: ignore[method-assign]
    with skip_interpreter_shutdown():
        join(world)
        for recipe, *overrides in json.loads(path.read_text()):
            calls.clear()
            job = pretraining.build(load(PretrainRecipe, Path(recipe), overrides))
            make_directory(job.recipe.run)
            Run(job, world, None).train()
            first, second = [i for i, call in enumerate(calls) if call[0] == "step"][STEP - 1 : STEP + 1]
            found.append(calls[first + 1 : second])
        if world.rank == 0:
            (path.parent / "calls.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
