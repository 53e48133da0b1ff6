"""The training command: one process, started by the deepspeed launcher, from its recipe to its exit.

`trainer.pretrain` and `trainer.finetune` call `run` with what builds their job, and `deepsiam.pretrain` and
`deepsiam.finetune` call `train_here`. It comes before the first step: it meets the other ranks, reads the recipe, locks
the run's folder, chooses the checkpoint, and starts the loop.
"""

import argparse
import json
import platform
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import torch.distributed as dist

from deepsiam.data_prep.common import streams
from deepsiam.data_prep.common.environment import restored_variables
from deepsiam.data_prep.common.errors import InputError, StoppedError, exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import lock, make_directory, undo_replace, whole_file
from deepsiam.trainer.training.checkpoints import checkpoint, own_code
from deepsiam.trainer.training.data.loader import check_layout
from deepsiam.trainer.training.data.opened import check_cache_room
from deepsiam.trainer.training.engine import ds_config, plain_files
from deepsiam.trainer.training.engine.device import require_visible_gpus
from deepsiam.trainer.training.engine.rendezvous import end_others, serve
from deepsiam.trainer.training.engine.world import (
    World,
    check_address,
    failed_rank_exits_first,
    has_address,
    has_joined,
    join,
    leave,
    rank_0_speaks,
)
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import AnyRecipe, Recipe
from deepsiam.trainer.training.recipe.yaml_file import load as load_recipe
from deepsiam.trainer.training.run.job import Job, check_job, complete
from deepsiam.trainer.training.run.loop import Run
from deepsiam.trainer.training.run.stop import RESUME, exit_with_workers
from deepsiam.trainer.training.run.versions import git_commit, versions

WAIT_SECONDS = 5.0  # until a file written by rank 0 is visible through a network file system
INTERRUPTED = 130  # exit code
LOCK = "lock"  # file in a run's folder, locked by the process that trains the run


def run(
    name: str, arguments: argparse.Namespace, kind: type[AnyRecipe], build: Callable[[AnyRecipe, Path | None], Job]
) -> None:
    """Train the job that `build` makes of the recipe and the checkpoint to resume from, if there is one.

    Bad input exits with one line and exit code 2. Rank 0 checks everything while the other ranks wait, so an error
    common to all ranks is printed once; the others then exit with the same code.
    """
    with exit_on_input_error(name):
        world = World.from_environment()
    prefix = name if world.rank == 0 else f"{name}: rank {world.rank}"
    with (
        skip_interpreter_shutdown(),
        _end_waiting_ranks(world),
        exit_on_input_error(prefix),
        _report_errors_once(world, prefix),
    ):
        with rank_0_speaks(world.local_rank):
            require_visible_gpus()
        check_address(world)
        store = serve() if world.rank == 0 and world.size > 1 else None  # the others wait there from now on
        resume_from = None
        if world.rank:
            join(world)
            resume_from = path_of_rank_0(None)
        streams.set_up(lossy=not arguments.find_lr)  # a run of weeks outlives the disk and the reader of its log
        recipe = load_recipe(kind, arguments.recipe, arguments.overrides)
        _check_needs(recipe, world)
        is_finished = True
        if arguments.find_lr:
            _find_lr(build(recipe, None), world)
        else:
            is_finished = _train(recipe, build, world, resume_from, arguments.resume)
        dist.destroy_process_group()
        del store  # alive until here: the other ranks reach rank 0 through it
        if not is_finished:
            raise SystemExit(RESUME)


def train_here(recipe: AnyRecipe, build: Callable[[AnyRecipe, Path | None], Job], *, resume: bool) -> None:
    """Train a recipe in this process, as the only rank; it can train another one afterwards.

    Raise InputError for bad input, StoppedError where a stop was requested: the run is then saved.
    """
    world = World.from_environment()
    if world.size > 1:
        raise InputError(
            f"this process is rank {world.rank} of {world.size}, and a training in it has one: give their number as "
            "gpus, in a process without a launcher, or start the command by the launcher"
        )
    if threading.current_thread() is not threading.main_thread():
        raise InputError("a training handles signals, which the main thread alone can: start it there, or give gpus")
    with restored_variables():
        require_visible_gpus()
        _check_needs(recipe, world)
        try:
            is_finished = _train(recipe, build, world, None, resume)
        finally:
            leave()
    if not is_finished:
        raise StoppedError(f"{recipe.run}: stopped on request, saved: train it again with resume to continue")


def _train(
    recipe: AnyRecipe,
    build: Callable[[AnyRecipe, Path | None], Job],
    world: World,
    resume_from: Path | None,
    resume: bool,
) -> bool:
    """Start or resume a run, which rank 0 records in its folder; return whether it is trained to its last step.

    All ranks but rank 0 have joined, and know from it what to resume from.
    """
    with ExitStack() as lock_file:
        is_locked = False
        if world.rank == 0:
            # before choosing the newest checkpoint: a process that holds the lock may save a newer one
            if is_locked := (recipe.run / LOCK).is_file():
                lock_file.enter_context(_lock(recipe.run))
                for folder in (recipe.run, recipe.run / "checkpoints"):
                    undo_replace(folder)
            resume_from = _resume_from(recipe, resume)
        job = build(recipe, resume_from)
        _check_cluster(job, world)
        if world.rank == 0:
            if resume_from is not None:
                _check_continues(job, resume_from)
            if not is_locked:
                lock_file.enter_context(_lock(recipe.run))
            join(world)
            path_of_rank_0(resume_from)
            record(job, world)
        check_same(job)
        check_shared(recipe.run)
        if resume_from is None or checkpoint.read_state(resume_from).step < recipe.steps:
            return Run(job, world, resume_from).train()
        if world.rank == 0:
            print(f"{recipe.run} is already trained to its last step ({resume_from.name})", flush=True)
        return True


def _find_lr(job: Job, world: World) -> None:
    """Let the ranks, of which all but rank 0 have joined, try learning rates; the run's folder is not touched."""
    from deepsiam.trainer.training.run.find_lr import find_lr  # few runs need it

    _check_cluster(job, world)
    if world.rank == 0:
        join(world)
        path_of_rank_0(None)
    check_same(job)
    find_lr(job, world)


def record(job: Job, world: World) -> None:
    """Record in the run's folder what it was started with: recipe, tokenizer, trunk, versions, data, commit."""
    environment = {
        "versions": versions(),
        "python": platform.python_version(),
        "git_commit": git_commit(Path(__file__).parent),
        "world_size": world.size,
        "deepspeed_config": str(ds_config.load(job.recipe.deepspeed)[0]),
        **job.resume_invariants,
    }
    for name, content in {**job.sidecar_files, "environment.json": json.dumps(environment, indent=1).encode()}.items():
        with whole_file(job.recipe.run / name) as file:
            file.write(content)


def path_of_rank_0(path: Path | None) -> Path | None:
    """Broadcast rank 0's path: on a shared file system another rank might see a different newest checkpoint."""
    message = [str(path) if path else None]
    dist.broadcast_object_list(message)
    return Path(message[0]) if message[0] else None


@contextmanager
def skip_interpreter_shutdown() -> Iterator[None]:
    """Skip interpreter shutdown in a process that has joined the ranks.

    About once in a hundred exits, a live process-group thread aborts the process and the exit code is lost.
    """
    code: str | int | None = 0
    try:
        yield
    except SystemExit as end:
        code = end.code
        if not has_joined():
            raise
    except BaseException:  # Python would wait at exit for loader workers, which ignore the launcher's signals
        if not has_joined():
            raise
        traceback.print_exc()
        code = 1
    if has_joined():
        if isinstance(code, str):
            print(code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        exit_with_workers(1 if isinstance(code, str) else code or 0)


@contextmanager
def _end_waiting_ranks(world: World) -> Iterator[None]:
    """If rank 0 ends before it has joined the other ranks, end them as well."""
    try:
        yield
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        waited_for = world.rank == 0 and world.size > 1 and has_address(world) and not has_joined()
        if waited_for and isinstance(code, int) and code != INTERRUPTED:  # Ctrl-C reaches all ranks
            end_others(world.size, code)
        raise


@contextmanager
def _report_errors_once(world: World, prefix: str) -> Iterator[None]:
    """Let rank 0 report a SharedError, the rank that failed a lost connection, and each its own killed loader worker.

    PyTorch raises an error for a killed worker wherever the rank is.
    """
    try:
        with failed_rank_exits_first():
            yield
    except SharedError:
        if world.rank:
            raise SystemExit(2) from None
        raise
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise SystemExit(
            f"{prefix}: a loader worker was lost ({reason}): out of memory? Then lower data.workers; add --resume"
        ) from None


def _resume_from(recipe: Recipe, resume: bool) -> Path | None:
    """Choose the checkpoint to resume from; raise InputError if `resume` is not set, or a file could run code."""
    newest = checkpoint.newest(recipe.run)
    if newest is not None and not resume:
        raise InputError(
            f"{recipe.run} contains a run ({newest.name}): add --resume to continue it, or set another run=FOLDER"
        )
    if newest is not None:
        plain_files.check(newest / checkpoint.ENGINE)
    if resume:
        print(f"resuming from {newest}" if newest else f"{recipe.run} has no checkpoint yet: starting", flush=True)
    return newest


def _check_continues(job: Job, resume_from: Path) -> None:
    """Raise InputError unless a job continues a checkpoint; print that its order of data changes, if it does."""
    own_code.check_continues(resume_from, job.own_code)
    checkpoint.check_continues(resume_from, job.resume_invariants)
    state = checkpoint.read_state(resume_from)
    job.order.check(state.cursor.positions, resume_from)
    saved_micro, micro = state.cursor.micro, job.recipe.batch.micro
    if micro != saved_micro:
        print(
            f"batch.micro is {micro} from step {state.step + 1} on, and was {saved_micro}: no example is lost or "
            "repeated, but other ones make a step",
            flush=True,
        )


def _check_needs(recipe: Recipe, world: World) -> None:
    """Raise InputError if a recipe expects another number of ranks, a package, or a file of DeepSpeed's."""
    # if the hostfile is missing, DeepSpeed only warns, and trains on this host alone
    if recipe.ranks not in (None, world.size):
        raise InputError(
            f"ranks: {recipe.ranks} are expected, and {world.size} were started: see that --hostfile names a file that "
            f"exists and lists every host, or set ranks={world.size}"
        )
    if recipe.wandb:
        require("wandb", "wandb", feature="wandb")
    ds_config.load(recipe.deepspeed)


def _check_cluster(job: Job, world: World) -> None:
    """Raise InputError if the job cannot be trained here, or the ranks cannot share its lanes or the host's cache."""
    check_job(job)
    recipe, workers = job.recipe, job.recipe.data.workers
    check_layout(job.order.lanes, recipe.batch.micro_batches, world.size, workers)
    if limit := getattr(recipe.data, "cache_bytes", 0):  # of shards, which may be remote
        room = {"world_size": world.size, "local_size": world.local_size, "workers": workers}
        check_cache_room(job.order, job.data.held_out, limit, **room)


def _lock(run: Path) -> BinaryIO:
    # another process may have the lock: ranks whose launcher was killed run on until their next step
    make_directory(run)
    return lock(run / LOCK, f"{run}: is being trained by another process: wait until it ends, or end it")


def check_shared(run: Path) -> None:
    """Raise SharedError if a rank does not see a file that rank 0 writes into the run's folder.

    The file's name is new each time, because a network file system may cache that a name was missing.
    """
    name = [uuid.uuid4().hex]
    dist.broadcast_object_list(name)
    path = run / f"seen-by-all-{name[0]}"
    if dist.get_rank() == 0:
        path.touch()
    try:
        dist.barrier()  # nobody looks before it is written
        blind: list[str | None] = [None] * dist.get_world_size()
        dist.all_gather_object(blind, None if _seen(path) else socket.gethostname())
    finally:
        if dist.get_rank() == 0:
            path.unlink()
    ranks = [rank for rank, host in enumerate(blind) if host]
    if ranks:
        raise SharedError(
            f"{run}: rank {ranks[0]}, on {blind[ranks[0]]}, sees another folder there than rank 0 "
            f"({len(ranks)} of {len(blind)} ranks do): put the run on a file system that all hosts share, at one path"
        )


def check_same(job: Job) -> None:
    """Raise SharedError if a rank trains with another recipe, other data or another precision than rank 0.

    A recipe may be edited while rank 0 opens the data, or lie on each host; `deepspeed: auto` depends on the device.
    """
    config = {"deepspeed's file": ds_config.load(job.recipe.deepspeed)[1]}
    settings = {**job.resume_invariants, **complete(job.recipe), **config, "SHA-256 of its own code": job.own_code}
    rank_0_settings = [settings]
    dist.broadcast_object_list(rank_0_settings)
    changes = checkpoint.differences(rank_0_settings[0], settings)
    lines = (f"{key}={value}, and rank 0 with {rank_0_value}" for key, rank_0_value, value in changes)
    differences: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(differences, next(lines, None))
    for rank, difference in enumerate(differences):
        if difference:
            raise SharedError(
                f"rank {rank} would train with {difference}: give all ranks the same recipe, data and devices, and "
                "start again"
            )


def _seen(path: Path) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
