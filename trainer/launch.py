"""From a command line to a finished run: one process of it, started by the deepspeed launcher."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist
import yaml

from data_prep.errors import InputError, exit_on_input_error
from data_prep.files import make_directory, read_bytes, whole_file
from data_prep.tokenizer import Tokenizer
from models.task import Batcher
from trainer import checkpoint, ds_config
from trainer.engine import World, join
from trainer.lanes import LaneOrder, Source
from trainer.loader import check_layout
from trainer.loop import Job, Run
from trainer.methods import Model, trunk_settings
from trainer.recipe import AnyRecipe, FinetuneRecipe, PretrainRecipe, Recipe
from trainer.recipe import load as load_recipe

PACKAGES = ("torch", "deepspeed", "transformers", "tokenizers", "webdataset", "numpy")


def main(
    name: str,
    kind: type[AnyRecipe],
    build: Callable[[AnyRecipe], Job],
    argv: Sequence[str] | None = None,
) -> None:
    """Run `name RECIPE [--resume] [key=value ...]`: `build` makes the job that its recipe describes.

    Bad input ends with one line and exit code 2. Rank 0 looks at everything before it opens the rendezvous that the
    others wait at, so that what is wrong for all is said once; the launcher ends the others.
    """
    world = World.from_environment()
    with exit_on_input_error(name if world.rank == 0 else f"{name}: rank {world.rank}"), _quiet_for_another_rank():
        if world.rank:
            join(world)
        arguments = _arguments(name, argv)
        recipe = load_recipe(kind, arguments.recipe, arguments.overrides)
        ds_config.load(recipe.deepspeed)
        resume_from = _resume_from(recipe, arguments.resume) if world.rank == 0 else None
        job = build(recipe)
        check_layout(job.order.lanes, recipe.batch.micro_batches, world.size, job.workers)
        if world.rank == 0:
            if resume_from is not None:
                checkpoint.check_continues(resume_from, job.fixed, world.size)
            _record(job, world)
            join(world)
        resume_from = _from_rank_0(resume_from)
        if resume_from is None or checkpoint.read_state(resume_from).step < recipe.steps:
            Run(job, world, resume_from).train()
        elif world.rank == 0:
            print(f"{recipe.run} is trained to its last step already ({resume_from.name})", flush=True)
        dist.destroy_process_group()


def make_job(
    recipe: PretrainRecipe | FinetuneRecipe,
    model: Model,
    source: Source,
    batcher: Batcher,
    tokenizer: Tokenizer,
    data_sha256: str,
) -> Job:
    """What every kind of training puts together in the same way."""
    data = recipe.data
    order = LaneOrder(
        source,
        batcher,
        seed=recipe.seed,
        lanes=data.lanes,
        window=data.window,
        micro_batch=recipe.batch.micro,
    )
    about = {
        checkpoint.RECIPE: yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False).encode(),
        checkpoint.TOKENIZER: read_bytes(tokenizer.path),
        checkpoint.TRUNK: json.dumps(trunk_settings(model.trunk), indent=1).encode(),
    }
    fixed = {
        "seed": recipe.seed,
        "data": data.model_dump(mode="json", exclude={"workers"}),
        "batch.size": recipe.batch.size,
        "batch.micro": recipe.batch.micro,
        "data sha256": data_sha256,
    }
    return Job(recipe, model, order, data.workers, recipe.method.weights, about, fixed)


@contextmanager
def _quiet_for_another_rank() -> Iterator[None]:
    """A rank that loses a peer leaves the word to it, and waits for the launcher, which ends all when one ends."""
    try:
        yield
    except RuntimeError as error:
        if not any(sign in str(error) for sign in ("Connection closed by peer", "Connection reset by peer")):
            raise
        time.sleep(30)
        raise SystemExit("lost contact with another rank, which left no word") from error


def _arguments(name: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=name, description="Train what a recipe describes.")
    parser.add_argument("recipe", type=Path, help="a YAML file, as in recipes/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as optimizer.lr=2e-4")
    parser.add_argument("--resume", action="store_true", help="go on from the run's newest whole checkpoint")
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # given by the launcher; the environment has it too
    return parser.parse_intermixed_args(argv)


def _resume_from(recipe: Recipe, resume: bool) -> Path | None:
    """The checkpoint to go on from; refuses to start over where a run stands."""
    newest = checkpoint.newest(recipe.run)
    if newest is not None and not resume:
        raise InputError(f"{recipe.run} holds a run ({newest.name}): add --resume to go on, or set another run=FOLDER")
    if resume:
        print(
            f"resuming from {newest}" if newest else f"{recipe.run} has no checkpoint yet: starting",
            flush=True,
        )
    return newest


def _from_rank_0(path: Path | None) -> Path | None:
    """Rank 0's choice, for all: on a shared file system another rank might see another newest checkpoint."""
    chosen = [str(path) if path else None]
    dist.broadcast_object_list(chosen)
    return Path(chosen[0]) if chosen[0] else None


def _record(job: Job, world: World) -> None:
    """Leave in the run's folder what it was started with: recipe, tokenizer, trunk, versions, data, commit."""
    run = job.recipe.run
    make_directory(run)
    environment = {
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "git_commit": _git_commit(),
        "world_size": world.size,
        "deepspeed_config": str(ds_config.load(job.recipe.deepspeed)[0]),
        **job.fixed,
    }
    for name, content in {
        **job.about,
        "environment.json": json.dumps(environment, indent=1).encode(),
    }.items():
        with whole_file(run / name) as file:
            file.write(content)


def _git_commit() -> str:
    """The commit of this code, `-dirty` where it has uncommitted changes; `unknown` outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
