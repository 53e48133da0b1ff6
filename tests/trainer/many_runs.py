"""Train several runs one after another in one launch: starting processes takes longer than training small runs.

fp16 runs on any CPU here: where the processor lacks it, PyTorch emulates it in software, too slowly for real use.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.jobs import finetuning, pretraining
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import build, read
from deepsiam.trainer.training.run.command import from_rank_0, record, skip_interpreter_shutdown
from deepsiam.trainer.training.run.job import Job
from deepsiam.trainer.training.run.loop import Run
from tests import toy


def train(ranks: int, runs: Sequence[Sequence[object]], folder: Path) -> str:
    """Train each [RECIPE, key=value, ...], from its newest checkpoint if it has one; return the standard output."""
    (folder / "runs.json").write_text(json.dumps([list(map(str, run)) for run in runs]))
    done = toy.launch(ranks, "tests.trainer.many_runs", folder / "runs.json")
    assert done.returncode == 0, done.stderr
    return done.stdout


def ds_config(folder: Path, name: str, power: int) -> Path:
    """Copy a file of ds_configs/; an fp16 one gets the initial loss scale 2 to the `power`."""
    values = json.loads((toy.ROOT / "ds_configs" / f"{name}.json").read_text())
    if "fp16" in values:
        values["fp16"]["initial_scale_power"] = power
    (folder / f"{name}.json").write_text(json.dumps(values))
    return folder / f"{name}.json"


def stage_file(folder: Path, stage: int) -> Path:
    """Write a configuration of a ZeRO stage in fp32."""
    # no parameter stays whole: even a small model is fully partitioned
    zero = {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {})}
    (folder / f"zero{stage}_fp32.json").write_text(json.dumps({"zero_optimization": zero}))
    return folder / f"zero{stage}_fp32.json"


# every file of ds_configs/; stage 3 comes last: later runs in a launch would inherit its linear layer, which rounds
# differently
CONFIGS = ("cpu", "zero1_bf16", "zero1_fp16", "zero2_bf16", "zero2_fp16", "zero3_bf16", "zero3_fp16")
OF_EVERY_MODEL = ("cpu", "zero1_fp16", "zero2_bf16", "zero3_bf16")  # with every precision, and with every stage
LOSS_SCALE_POWER = 12  # for fp16: so low that no step overflows; a skipped step would change all later losses


def train_in_all_ways(recipes: Mapping[str, Path], complete: str, folder: Path) -> None:
    """Train the recipes of all models as runs NAME, on one rank in fp32, and NAME-CONFIG, on two ranks.

    The model named `complete` is trained with every file of ds_configs/, the others with those of `configs_of`.
    """
    train(1, [[recipe] for recipe in recipes.values()], folder)
    runs = [
        [recipe, f"run={folder}/{name}-{config}", f"deepspeed={ds_config(folder, config, LOSS_SCALE_POWER)}"]
        for config in CONFIGS
        for name, recipe in recipes.items()
        if config in configs_of(name, complete)
    ]
    train(2, runs, folder)


def train_and_resume(
    whole: Sequence[Sequence[object]],
    alone: Sequence[Sequence[object]],
    resumed: Sequence[tuple[str, str]],
    run: Callable[..., Sequence[object]],
    steps: int,
    folder: Path,
) -> None:
    """Train runs on two ranks, others alone, and KIND-2-CONFIG of each `resumed` (kind, config) in two parts.

    `run(kind, config, name, change ...)` makes a run named KIND-NAME. The second half of a resumed run is trained on 2
    ranks in -same and on one rank in -other, from the checkpoint half-way of the whole run, which must be in `whole`.
    """
    halves = [run(*one, f"2-{one[1]}-same", f"steps={end}") for one in resumed for end in (steps // 2, steps)]
    # stage 3 comes last: later runs in the process would inherit its own linear layer, which rounds differently
    train(2, sorted([*whole, *halves], key=lambda run: "zero3" in str(run[2])), folder)
    for kind, config in resumed:
        name = f"{kind}-2-{config}"
        shutil.copytree(folder / name, folder / f"{name}-other", ignore=shutil.ignore_patterns("tensorboard"))
        shutil.rmtree(checkpoint.folder(folder / f"{name}-other", steps))
    train(1, [*alone, *(run(*one, f"2-{one[1]}-other") for one in resumed)], folder)


def configs_of(name: str, complete: str) -> tuple[str, ...]:
    """The files that a model is trained with: stages and precisions meet in DeepSpeed, the same for all models."""
    return CONFIGS if name == complete else OF_EVERY_MODEL


class _AlwaysTrue:
    """A PyTorch operator that is replaced to return True; its other attributes are unchanged."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def __call__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)


def main() -> None:
    """Train the runs; called by every rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--local_rank")
    torch.ops.mkldnn._is_mkldnn_fp16_supported = _AlwaysTrue(torch.ops.mkldnn._is_mkldnn_fp16_supported)
    world = World.from_environment()
    with skip_interpreter_shutdown():
        join(world)
        for recipe, *overrides in json.loads(parser.parse_args().runs.read_text()):
            newest = from_rank_0(checkpoint.newest(Path(read(Path(recipe), overrides)["run"])))
            job = job_of(Path(recipe), overrides, newest)
            if world.rank == 0:
                make_directory(job.recipe.run)
                record(job, world)
            Run(job, world, newest).train()


def job_of(path: Path, overrides: Sequence[str], resume_from: Path | None = None) -> Job:
    """Build the job of a pre-training or fine-tuning recipe, as the commands do."""
    values = read(path, overrides)
    recipe = build(kind_of(values), values, str(path))
    if isinstance(recipe, PretrainRecipe):
        return pretraining.build(recipe, resume_from)
    assert isinstance(recipe, FinetuneRecipe)
    return finetuning.build(recipe, resume_from)


if __name__ == "__main__":
    main()
