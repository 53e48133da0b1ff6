"""What a run reads, step by step, without training it: what `trainer.trace` prints."""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepsiam.data_prep.common.errors import InputError, printable
from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_folder
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.loader import Loader, check_layout
from deepsiam.trainer.training.data.open_pairs import pair_data
from deepsiam.trainer.training.data.open_shards import shard_data
from deepsiam.trainer.training.data.opened import Data, resume_invariants
from deepsiam.trainer.training.data.order import LaneBatch
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load_any

if TYPE_CHECKING:
    from deepsiam.trainer.training.run.job import Refresh

# settings that a resume must keep, but that do not affect the data
MODEL_KEYS = ("trunk", "init_from", "bidirectional", "random_weights", "optimizer.name", "optimizer.train", "optimizer")


def print_steps(arguments: argparse.Namespace) -> None:
    """Print the steps that the arguments of `trainer.trace` choose: a digest of each, or what one contains."""
    recipe = with_keys_from_folder(load_any(arguments.recipe, arguments.overrides))
    data = shard_data(recipe) if isinstance(recipe, PretrainRecipe) else pair_data(recipe)
    check_layout(data.order.lanes, recipe.batch.micro_batches, arguments.world_size, arguments.workers)
    first_step, last_step = (arguments.show, arguments.show) if arguments.show else arguments.steps
    _check_micro(recipe, first_step, last_step)
    refresh = None
    if isinstance(recipe, FinetuneRecipe) and recipe.refresh:
        from deepsiam.trainer.ranking.while_training.refresh import open_refresh  # imports what ranks: seconds

        refresh = open_refresh(recipe, data)
    steps = trace(recipe, data, first_step, arguments.world_size, arguments.workers, refresh)
    for step, batches in islice(steps, last_step - first_step + 1):
        if arguments.show:
            print("\n".join(show(step, batches, data)))
        else:
            print(step, digest([batch.micro_batch for batch in batches]), flush=True)


def trace(
    recipe: PretrainRecipe | FinetuneRecipe,
    data: Data,
    first_step: int,
    world_size: int,
    workers: int,
    refresh: Refresh | None = None,
) -> Iterator[tuple[int, list[LaneBatch]]]:
    """Yield (step, its micro-batches) from optimizer step `first_step` on, as `world_size` ranks would read them.

    Steps count from 1. Reading starts at the run's last checkpoint before `first_step`, or else at step 1.
    `workers` is the number of loader workers of each rank; `refresh` has the negatives that the run mined: raise
    InputError where they are not there any more.
    """
    step, cursor = _start(recipe, data, first_step)
    ranks: list[Iterator[LaneBatch]] = []
    while True:
        if refresh is not None and refresh.current_step != refresh.step_of(step):
            refresh.use(step)
            ranks = []
        if not ranks:
            ranks = [Loader(data.order, rank, world_size, workers).micro_batches(cursor) for rank in range(world_size)]
        step += 1
        batches = [batch for rank in ranks for batch in islice(rank, recipe.batch.micro_batches // world_size)]
        cursor.advance(batches, recipe.batch.micro_batches)
        if step >= first_step:
            yield step, batches


def digest(micro_batches: Sequence[MicroBatch]) -> str:
    """Hash the arrays of micro-batches, independently of their order: 128 bits, in hex."""
    digests = []
    for micro_batch in micro_batches:
        content = hashlib.blake2b(digest_size=16)
        for name, array in sorted(micro_batch.arrays.items()):
            content.update(f"{name} {array.dtype} {array.shape}".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        digests.append(content.digest())
    return hashlib.blake2b(b"".join(sorted(digests)), digest_size=16).hexdigest()


def show(step: int, batches: Sequence[LaneBatch], data: Data) -> Iterator[str]:
    """Describe a step in lines of text: every example's documents, and every row of token ids as tokens."""
    yield f"step {step}  {digest([batch.micro_batch for batch in batches])}"
    for batch in sorted(batches, key=lambda batch: batch.index):
        name = data.order.names[batch.source]
        yield f"\nmicro-batch {batch.index}, {f'{name} ' if name else ''}lane {batch.lane}, epoch {batch.start.epoch}"
        for number, documents in enumerate(data.order.origins(batch)):
            yield f"  example {number}: {printable('; '.join(documents))}"
        for name, array in batch.micro_batch.arrays.items():
            if name.endswith("_ids"):
                yield f"  {name}"
                for number, row in enumerate(array):
                    yield f"    {number}: {printable(data.tokenizer.decode(row[row != data.tokenizer.pad]))}"


def _start(recipe: PretrainRecipe | FinetuneRecipe, data: Data, first_step: int) -> tuple[int, Cursor]:
    """Return the step and position to read from: the run's last checkpoint before `first_step`, or the beginning."""
    path = next(_whole_checkpoints(recipe.run, end_step=first_step), None)
    if path is None:
        return 0, Cursor(data.order.start())
    state = checkpoint.read_state(path)
    settings, saved = resume_invariants(recipe, data), state.resume_invariants
    # settings that do not affect the data are the saved ones here, so that they are equal
    pooling = {"pooling": saved["method"]["pooling"]} if "pooling" in saved.get("method", {}) else {}
    saved_model_settings = {key: value for key, value in saved.items() if key in MODEL_KEYS}
    method = settings["method"] | pooling
    checkpoint.check_continues(path, {**settings, **saved_model_settings, "method": method})
    data.order.check(state.cursor.positions, path)
    print(f"reading from {path} on", file=sys.stderr)
    return state.step, state.cursor.with_micro(recipe.batch.micro, state.step)


def _whole_checkpoints(run: Path, end_step: float = math.inf) -> Iterator[Path]:
    """Yield the run's checkpoints before a step that pass verification, the newest first."""
    earlier = (path for path in checkpoint.newest_first(run) if checkpoint.step_of(path) < end_step)
    return (path for path in earlier if checkpoint.verify(path) is None)


def _check_micro(recipe: PretrainRecipe | FinetuneRecipe, first_step: int, last_step: int) -> None:
    """Raise InputError if the run trained a requested step with a batch.micro other than the recipe's."""
    newest = next(_whole_checkpoints(recipe.run), None)
    if newest is None:
        return
    read_from = next(map(checkpoint.step_of, _whole_checkpoints(recipe.run, end_step=first_step)), 0)
    state = checkpoint.read_state(newest)
    sizes = state.cursor.micro_sizes
    for start, end in pairwise([*sorted(sizes), state.step]):
        size = sizes[start]
        if start < last_step and read_from < end and size != recipe.batch.micro:
            raise InputError(
                f"steps {start + 1} to {end} were trained with batch.micro={size}, and reading begins at step "
                f"{read_from + 1}: set batch.micro={size} to show them, or show steps after a later checkpoint"
            )
