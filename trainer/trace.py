"""What a run sees, step by step, without training: `python -m trainer.trace RECIPE [--show STEP] [key=value ...]`.

Prints `step digest` for every optimizer step asked for. The digest is an order-free hash of the step's micro-batches,
masks and all other random choices included: the same for any number of ranks and loader workers, and different where
anything that the model sees differs. A run's own recipe is RUN/recipe.yaml.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from data_prep.argument_types import positive
from data_prep.errors import exit_on_input_error, printable
from data_prep.tokenizer import Tokenizer
from models.task import MicroBatch
from trainer import checkpoint, recipe, trained
from trainer.cursor import Cursor
from trainer.data import Data, fixed, pair_data, shard_data
from trainer.loader import check_layout, rank_micro_batches
from trainer.order import LaneBatch
from trainer.recipe import FinetuneRecipe, PretrainRecipe


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    options = _parser().parse_intermixed_args(argv)
    with exit_on_input_error("trainer.trace"):
        described = _load(options.recipe, options.overrides)
        data = shard_data(described) if isinstance(described, PretrainRecipe) else _pairs(described)
        check_layout(data.order.lanes, described.batch.micro_batches, options.world_size, options.workers)
        first, last = (options.show, options.show) if options.show else options.steps
        steps = trace(described, data, first, options.world_size, options.workers)
        for step, batches in islice(steps, last - first + 1):
            if options.show:
                print("\n".join(shown(step, batches, data)))
            else:
                print(step, digest([batch.micro_batch for batch in batches]), flush=True)


def trace(
    described: PretrainRecipe | FinetuneRecipe, data: Data, first: int, world_size: int, workers: int
) -> Iterator[tuple[int, list[LaneBatch]]]:
    """(step, its micro-batches) from optimizer step `first` on, as so many ranks with so many workers would read them.

    Steps count from 1. Reading begins at the run's last checkpoint before, if it has one, else at the first step.
    """
    step, cursor = _start(described, data, first)
    a_step = described.batch.micro_batches
    ranks = [
        rank_micro_batches(data.order, cursor.positions, cursor.micro_batches, rank, world_size, workers)
        for rank in range(world_size)
    ]
    while True:
        step += 1
        batches = [batch for rank in ranks for batch in islice(rank, a_step // world_size)]
        if step >= first:
            yield step, batches


def digest(micro_batches: Sequence[MicroBatch]) -> str:
    """A hash of what micro-batches hold, whatever their order: 128 bits, in hex."""
    each = []
    for micro_batch in micro_batches:
        content = hashlib.blake2b(digest_size=16)
        for name, array in sorted(micro_batch.arrays.items()):
            content.update(f"{name} {array.dtype} {array.shape}".encode())
            content.update(np.ascontiguousarray(array).tobytes())
        each.append(content.digest())
    return hashlib.blake2b(b"".join(sorted(each)), digest_size=16).hexdigest()


def shown(step: int, batches: Sequence[LaneBatch], data: Data) -> Iterator[str]:
    """What a step saw, in words: every example's documents, and every row of token ids."""
    yield f"step {step}  {digest([batch.micro_batch for batch in batches])}"
    for batch in sorted(batches, key=lambda batch: batch.index):
        name = data.order.names[batch.source]
        yield f"\nmicro-batch {batch.index}, {f'{name} ' if name else ''}lane {batch.lane}, epoch {batch.before.epoch}"
        for number, documents in enumerate(data.order.origins(batch)):
            yield f"  example {number}: {printable('; '.join(documents))}"
        for name, array in batch.micro_batch.arrays.items():
            if name.endswith("_ids"):
                yield f"  {name}"
                yield from (f"    {number}: {_words(row, data.tokenizer)}" for number, row in enumerate(array))


def _words(row: np.ndarray, tokenizer: Tokenizer) -> str:
    return printable(tokenizer.decode(row[row != tokenizer.pad]))


def _start(described: PretrainRecipe | FinetuneRecipe, data: Data, first: int) -> tuple[int, Cursor]:
    """The step and place to read from: the run's last checkpoint before step `first`, else the beginning."""
    for path in checkpoint.newest_first(described.run):
        if checkpoint.step_of(path) < first and checkpoint.verify(path) is None:
            checkpoint.check_continues(path, fixed(described, data))
            state = checkpoint.read_state(path)
            data.order.skip(state.cursor.skips)
            print(f"reading on from {path}", file=sys.stderr)
            return state.step, state.cursor
    return 0, Cursor(data.order.start())


def _load(path: Path, overrides: Sequence[str]) -> PretrainRecipe | FinetuneRecipe:
    values = recipe.read(path, overrides)
    return recipe.build(recipe.kind_of(values), values, str(path))


def _pairs(described: FinetuneRecipe) -> Data:
    return pair_data(described, trained.load(described.init_from))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer.trace", description="What a run sees, without training.")
    parser.add_argument("recipe", type=Path, help="a YAML file, as in recipes/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as optimizer.lr=2e-4")
    parser.add_argument("--world-size", type=positive, default=1, metavar="W", help="as so many ranks read (1)")
    parser.add_argument("--workers", type=_from_0, default=0, metavar="N", help="with so many loader workers each (0)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--steps", type=_steps, default=(1, 10), metavar="A:B", help="steps A to B, both included (1:10)")
    what.add_argument("--show", type=positive, metavar="STEP", help="decode what one step sees")
    return parser


def _from_0(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of steps, as 1:10")
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    main()
