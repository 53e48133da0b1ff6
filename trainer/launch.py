"""From a command line to a finished run: one process of it, started by the deepspeed launcher."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch.distributed as dist
import yaml

from data_prep.errors import InputError, exit_on_input_error
from data_prep.files import lock, make_directory, read_bytes, whole_file
from models.encoder import TrunkModel
from trainer import checkpoint, ds_config
from trainer.data import Data, fixed
from trainer.engine import World, has_joined, join
from trainer.faults import RESUME, SharedError
from trainer.loader import check_layout
from trainer.loop import Job, Run
from trainer.methods import settings_of
from trainer.probe import Probe
from trainer.recipe import AnyRecipe, FinetuneRecipe, PretrainRecipe, Recipe
from trainer.recipe import load as load_recipe

PACKAGES = ("torch", "deepspeed", "transformers", "tokenizers", "webdataset", "numpy")
LOCK = "lock"  # in a run's folder, of the process that trains it


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
    prefix = name if world.rank == 0 else f"{name}: rank {world.rank}"
    with _at_once(), exit_on_input_error(prefix), _quiet_for_another_rank(world):
        if world.rank:
            join(world)
        arguments = _arguments(name, argv)
        recipe = load_recipe(kind, arguments.recipe, arguments.overrides)
        ds_config.load(recipe.deepspeed)
        # before the newest checkpoint is chosen: who holds the folder may save a newer one
        held = _claim(recipe.run) if world.rank == 0 and (recipe.run / LOCK).is_file() else None
        resume_from = _resume_from(recipe, arguments.resume) if world.rank == 0 else None
        job = build(recipe)
        check_layout(job.order.lanes, recipe.batch.micro_batches, world.size, job.workers)
        for lanes in job.order.sources.values():
            lanes.source.check_room(job.order.lanes * world.local_size // world.size)
        if world.rank == 0:
            if resume_from is not None:
                checkpoint.check_continues(resume_from, job.fixed)
            held = held or _claim(recipe.run)
            join(world)
            _record(job, world)
        resume_from = _from_rank_0(resume_from)
        finished = True
        if resume_from is None or checkpoint.read_state(resume_from).step < recipe.steps:
            finished = Run(job, world, resume_from).train()
        elif world.rank == 0:
            print(f"{recipe.run} is trained to its last step already ({resume_from.name})", flush=True)
        dist.destroy_process_group()
        if held:
            held.close()
        if not finished:
            raise SystemExit(RESUME)


def make_job(recipe: PretrainRecipe | FinetuneRecipe, model: TrunkModel, data: Data, probe: Probe | None = None) -> Job:
    """What every kind of training puts together in the same way; InputError where its held-out data hold nothing."""
    if data.validation:
        data.validation.first()
    about = {
        checkpoint.RECIPE: yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False).encode(),
        checkpoint.TOKENIZER: read_bytes(data.tokenizer.path),
        checkpoint.TRUNK: json.dumps(settings_of(model.trunk.config), indent=1).encode(),
    }
    return Job(
        recipe,
        model,
        data.order,
        data.validation,
        recipe.data.workers,
        recipe.method.weights,
        about,
        fixed(recipe, data) | {"deepspeed": ds_config.states(ds_config.load(recipe.deepspeed)[1])},
        probe,
    )


@contextmanager
def _at_once() -> Iterator[None]:
    """Ends a rank without Python's own tidying up: a thread of its process group that still runs then, done with or
    given up, aborts the process, one time in some hundred, and its exit code with it.
    """
    code: str | int | None = 0
    try:
        yield
    except SystemExit as end:
        code = end.code
        if not has_joined():
            raise
    if has_joined():
        if isinstance(code, str):
            print(code, file=sys.stderr)
        for worker in multiprocessing.active_children():
            worker.kill()  # SIGTERM they leave to the rank
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if isinstance(code, str) else code or 0)


@contextmanager
def _quiet_for_another_rank(world: World) -> Iterator[None]:
    """A rank leaves the word to rank 0, or to a lost peer, and waits for the launcher, which ends all when one ends."""
    try:
        yield
    except SharedError:
        if world.rank:
            raise SystemExit(2) from None
        raise
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


def _claim(run: Path) -> BinaryIO:
    """The lock of a run's folder, which is made where there is none; it lasts until closed or the process ends.

    Raises InputError where another process has it: ranks whose launcher was killed live on until their next step.
    """
    make_directory(run)
    return lock(run / LOCK, f"{run}: is being trained by another process: let it end, or end it, first")


def _record(job: Job, world: World) -> None:
    """Leave in the run's folder what it was started with: recipe, tokenizer, trunk, versions, data, commit."""
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
        with whole_file(job.recipe.run / name) as file:
            file.write(content)


def _git_commit() -> str:
    """The commit of this code, `-dirty` where it has uncommitted changes; `unknown` outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
