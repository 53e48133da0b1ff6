"""Train several runs one after another in one launch: starting processes takes longer than training small runs.

fp16 runs on any CPU here: where the processor lacks it, PyTorch emulates it in software, too slowly for real use.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.jobs import finetuning, pretraining
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, kind_of
from deepsiam.trainer.training.recipe.yaml_file import build, read
from deepsiam.trainer.training.run.command import path_of_rank_0, record, skip_interpreter_shutdown
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
    if name in STAGE_3:
        values["zero_optimization"] |= DIVIDED
    (folder / f"{name}.json").write_text(json.dumps(values))
    return folder / f"{name}.json"


def stage_file(folder: Path, stage: int) -> Path:
    """Write a configuration of a ZeRO stage in fp32."""
    zero = {"stage": stage, **(DIVIDED if stage == 3 else {})}
    (folder / f"zero{stage}_fp32.json").write_text(json.dumps({"zero_optimization": zero}))
    return folder / f"zero{stage}_fp32.json"


# the files of ds_configs/
FP32 = "cpu"
STAGES_1_AND_2 = ("zero1_bf16", "zero2_fp16", "zero2_bf16", "zero1_fp16")
STAGE_3 = ("zero3_bf16", "zero3_fp16")
DIVIDED = {"stage3_param_persistence_threshold": 0}  # of stage 3: no parameter of even a small model stays whole
LOSS_SCALE_POWER = 12  # for fp16: so low that no step overflows; a skipped step would change all later losses


def train_in_all_ways(recipes: Mapping[str, Path], folder: Path) -> None:
    """Train the recipes of all models as runs NAME, on one rank in fp32, and NAME-CONFIG on two (see `configs`)."""
    train(1, [[recipe] for recipe in recipes.values()], folder)
    runs = [
        [recipe, f"run={folder}/{name}-{config}", f"deepspeed={ds_config(folder, config, LOSS_SCALE_POWER)}"]
        for name, recipe in recipes.items()
        for config in configs(recipes)[name]
    ]
    train(2, sorted(runs, key=in_stage_3), folder)


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
    train(2, sorted([*whole, *halves], key=in_stage_3), folder)
    for kind, config in resumed:
        copy_half_way(folder / f"{kind}-2-{config}", steps // 2, folder / f"{kind}-2-{config}-other")
    train(1, [*alone, *(run(*one, f"2-{one[1]}-other") for one in resumed)], folder)


def copy_half_way(run: Path, step: int, copy: Path) -> None:
    """Copy a run as it was when it saved a step, without its curves."""
    shutil.copytree(checkpoint.folder(run, step), checkpoint.folder(copy, step))


def in_stage_3(run: Sequence[object]) -> bool:
    """Sort these last: later runs in the process would inherit stage 3's own linear layer, which rounds differently."""
    return "zero3" in str(run[2])


def configs(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The files of ds_configs/ that each model is trained with, together all.

    Each is trained in fp32, and in one half precision with its weights divided among the ranks (stage 3), which a
    model could use outside of its layers. Of gradients and optimizer states (stages 1 and 2) a model knows nothing.
    """
    if toy.FULL_TESTS:
        return dict.fromkeys(names, (FP32, *STAGES_1_AND_2, *STAGE_3))
    stage_3, others = cycle(STAGE_3), iter(STAGES_1_AND_2)
    return {name: (FP32, next(stage_3), *islice(others, 1)) for name in names}


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
            values = read(Path(recipe), overrides)
            newest = path_of_rank_0(checkpoint.newest(Path(values["run"])))
            job = _job(values, recipe, newest)
            if world.rank == 0:
                make_directory(job.recipe.run)
                record(job, world)
            Run(job, world, newest).train()


def job_of(path: Path, overrides: Sequence[str]) -> Job:
    """Build the job of a pre-training or fine-tuning recipe, as the commands do."""
    return _job(read(path, overrides), str(path))


def _job(values: dict[str, Any], where: str, resume_from: Path | None = None) -> Job:
    recipe = build(kind_of(values), values, where)
    if isinstance(recipe, PretrainRecipe):
        return pretraining.build(recipe, resume_from)
    assert isinstance(recipe, FinetuneRecipe)
    return finetuning.build(recipe, resume_from)


if __name__ == "__main__":
    main()
