"""Watches the numbers and the data of a run: losses and gradients that are no numbers, shards that cannot be read."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import torch

from trainer.cursor import Cursor
from trainer.engine import Engine, StepResult
from trainer.faults import SharedError
from trainer.lanes import Skip
from trainer.order import LaneBatch, Order
from trainer.recipe import Recipe

MOST_OVERFLOWS = 40  # steps in a row that fp16 overflow may skip: more than the loss scale has halvings
MOST_ROLLBACKS = 3  # in a row without a new checkpoint
NAMED = 5  # documents named of a micro-batch at fault; trainer.trace shows them all


class Sentinel:
    """Judges every step alike on all ranks, by the policies of the recipe's `faults`."""

    def __init__(self, recipe: Recipe, engine: Engine, order: Order):
        self.recipe, self.engine, self.order = recipe, engine, order
        self.overflows = self.rollbacks = 0  # in a row

    def sound(self, step: int, batches: Sequence[LaneBatch], result: StepResult) -> bool:
        """Whether a step's losses and gradients are numbers on every rank; all ranks call.

        fp16 overflow is normal while the loss scale settles. Raises SharedError, naming lane, micro-batch and
        documents, where they are not and the recipe does not say to go back, or going back does not help.
        """
        overflow = self.engine.fp16 and result.skipped
        blamed = blame(result.losses, result.grad_norm, overflow=overflow)
        if not self.engine.sum_over_ranks(torch.tensor(len(blamed))).item():
            self._count_overflow(overflow)
            return True
        problem = f"step {step}: {self._describe([(batches[i], result.losses[i].tolist()) for i in blamed])}"
        hint = f"see them all: python -m trainer.trace {self.recipe.run}/recipe.yaml --show {step}"
        if self.recipe.faults.on_nan == "stop":
            raise SharedError(f"{problem}; {hint}; or go on past them with --resume faults.on_nan=skip")
        self.rollbacks += 1
        if self.rollbacks > MOST_ROLLBACKS:
            raise SharedError(
                f"{problem}; went back {MOST_ROLLBACKS} times before, without reaching another checkpoint"
            )
        self._say(f"{problem}; {hint}")
        return False

    def bad_shards(self, cursor: Cursor, met: Sequence[Skip]) -> None:
        """Say which shards, `met` just now, are passed over; raises SharedError where they are too many with these."""
        most = self.recipe.faults.most_bad_shards
        reasons = "; ".join(dict.fromkeys(skip.reason for skip in met))
        if cursor.bad_shards > most:
            raise SharedError(
                f"{cursor.bad_shards} bad shards, faults.most_bad_shards is {most}; among them: {reasons}"
            )
        self._say(f"bad shard {cursor.bad_shards} of at most {most}, passed over: {reasons}")

    def _count_overflow(self, overflow: bool) -> None:
        self.overflows = self.overflows + 1 if overflow else 0
        if self.overflows > MOST_OVERFLOWS:
            raise SharedError(
                f"fp16 overflow skipped {self.overflows} steps in a row: lower optimizer.lr, or train in bf16 or fp32"
            )

    def _describe(self, blamed: Sequence[tuple[LaneBatch, list[float]]]) -> str:
        """The worst that any rank has to say: a loss that is no number before a gradient that is none."""
        mine = [(not self._bad_terms(losses), self._name(batch, losses)) for batch, losses in blamed]
        everyone = sorted(words for some in self.engine.gather(mine) for words in some)
        return everyone[0][1]

    def _name(self, batch: LaneBatch, losses: list[float]) -> str:
        what = self._bad_terms(losses) or "the gradient is no finite number"
        source = f"{self.order.names[batch.source]} " if self.order.names[batch.source] else ""
        documents = list(dict.fromkeys(name for names in self.order.origins(batch) for name in names))
        more = f" and {len(documents) - NAMED} more" if len(documents) > NAMED else ""
        where = f"micro-batch {batch.index}, {source}lane {batch.lane}"
        return f"{what}: {where}, documents {'; '.join(documents[:NAMED])}{more}"

    def _bad_terms(self, losses: list[float]) -> str:
        pairs = zip(self.engine.weights, losses, strict=True)
        return ", ".join(f"the {term} loss is {loss}" for term, loss in pairs if not math.isfinite(loss))

    def _say(self, line: str) -> None:
        if self.engine.world.rank == 0:
            print(line, file=sys.stderr, flush=True)


def blame(losses: torch.Tensor, grad_norm: float, *, overflow: bool) -> list[int]:
    """The micro-batches to blame for a loss or gradient that is no finite number; empty where all is well.

    losses: sums, fp32 [micro-batches, terms]. Where only the gradient is at fault every micro-batch is suspect, unless
    it is fp16's `overflow`.
    """
    blamed = (~torch.isfinite(losses).all(dim=1)).nonzero()[:, 0].tolist()
    if not blamed and not overflow and not math.isfinite(grad_norm):
        return list(range(len(losses)))
    return blamed
