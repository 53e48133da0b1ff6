"""Check the numbers and the data of a run: non-finite losses, gradients of zero, equal vectors, unreadable shards.

The loop tells it what a step gave; the flags travel with the next step's message, so no step waits to be checked. If a
step was not sound, the run ends or goes back to its last checkpoint.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from deepsiam.models.batching.framing import arguments_of
from deepsiam.trainer.training.data.cursor import Cursor
from deepsiam.trainer.training.data.lanes import Skip
from deepsiam.trainer.training.data.order import LaneBatch, Order
from deepsiam.trainer.training.engine.engine import Engine, StepResult
from deepsiam.trainer.training.engine.world import warn
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import Recipe

MOST_OVERFLOWS = 40  # consecutive steps that fp16 overflow may skip: more than the loss scale can be halved
MOST_ROLLBACKS = 3  # consecutive, without a new checkpoint
MOST_ZERO_GRADIENTS = 10  # consecutive steps with a gradient of zero before the run says so
ZERO = 1e-7  # a smaller norm of the gradient is rounding
TOLERANCE = 1e-4  # vectors that differ by less, relative to their largest number, count as equal
COMPARED = 4  # texts of each of so many micro-batches: enough to see a collapse, which makes all vectors equal
MOST_DOCUMENTS = 5  # named for a bad micro-batch; trainer.trace shows all of them


class Health:
    """Check every step against the policies of the recipe's `faults`; all ranks come to the same result.

    A step is judged when the ranks next exchange numbers: before the next step is computed, or anything is saved. So
    the device is not waited for in between.
    """

    def __init__(self, recipe: Recipe, engine: Engine, order: Order):
        self.recipe, self.engine, self.order = recipe, engine, order
        self.overflows = self.rollbacks = self.zero_gradients = 0  # consecutive
        self.pending: tuple[int, Sequence[LaneBatch], StepResult] | None = None  # computed, not judged yet
        self.has_equal_vectors = False  # whether the texts had equal vectors when last compared

    def expect(self, step: int, batches: Sequence[LaneBatch], result: StepResult) -> None:
        """Record a computed step; the ranks judge it when they next exchange `flags`."""
        self.pending = step, batches, result

    def flags(self) -> torch.Tensor:
        """Return this rank's numbers for the verdict on the pending step, to be summed over the ranks.

        They are computed on the device, int64 [2]: whether something is not finite, and whether the gradient is zero.
        """
        if self.pending is None:
            return torch.zeros(2, dtype=torch.int64, device=self.engine.device)
        _, _, result = self.pending
        finite = torch.isfinite(result.losses).all()
        if not self._overflowed(result):
            finite &= torch.isfinite(result.grad_norm)
        return torch.stack([~finite, result.grad_norm <= ZERO]).long()

    def judge(self, bad_count: int, zero_gradients: int) -> bool:
        """Judge the pending step by the sums of the ranks' `flags`: are losses and gradients finite on every rank?

        fp16 overflow is normal while the loss scale settles. If they are not finite and the recipe does not allow a
        rollback, or rollbacks do not help, raise SharedError, naming lane, micro-batch and documents. All ranks call.
        """
        if self.pending is None:
            return True
        (step, batches, result), self.pending = self.pending, None
        overflow = self._overflowed(result)
        if not bad_count:
            self._count_overflow(overflow)
            self._count_zero_gradient(step, zero_gradients > 0)
            return True
        blamed = blame(result.losses, float(result.grad_norm), overflow=overflow)
        described = [self._describe(batches[i], result.losses[i].tolist()) for i in blamed]
        # one of all ranks': a bad loss takes precedence over a bad gradient
        problem = f"step {step}: {min(line for rank in self.engine.gather(described) for line in rank)[1]}"
        hint = f"show the step: python -m trainer.trace {self.recipe.run}/recipe.yaml --show {step}"
        if self.recipe.faults.on_nan == "stop":
            raise SharedError(f"{problem}; {hint}; or skip such steps: --resume faults.on_nan=skip")
        self.rollbacks += 1
        if self.rollbacks > MOST_ROLLBACKS:
            raise SharedError(f"{problem}; the run went back {MOST_ROLLBACKS} times without reaching a new checkpoint")
        warn(f"{problem}; {hint}")
        return False

    def compare_vectors(self, step: int, batches: Sequence[LaneBatch]) -> None:
        """Warn where different documents of a fine-tuning's step have equal vectors; all ranks call, at log time.

        A few of each rank's documents are embedded without dropout, which would make equal vectors differ.
        """
        if any("document_ids" not in batch.micro_batch.arrays for batch in batches):
            return
        count = int(self.engine.sum_over_ranks(torch.tensor([self._equal_vectors(batches)])))
        if count and not self.has_equal_vectors:
            warn(
                f"step {step}: {count} different documents have the same vector: nothing tells texts apart, so nothing "
                "can be learned: check method.pooling and the encoder, or lower optimizer.lr"
            )
        self.has_equal_vectors = count > 0

    def _equal_vectors(self, batches: Sequence[LaneBatch]) -> int:
        """Return how many different documents of this rank's first ones have equal vectors: all of them, or 0."""
        texts: set[bytes] = set()
        vectors = []
        for arrays in (batch.micro_batch.arrays for batch in batches[:COMPARED]):
            documents = {name: array[:COMPARED] for name, array in arguments_of("document_", arrays).items()}
            texts |= {ids[mask].tobytes() for ids, mask in zip(documents["ids"], documents["mask"], strict=True)}
            vectors.append(self.engine.embed(**documents))
        all_vectors = np.concatenate(vectors)
        are_equal = len(texts) > 1 and np.ptp(all_vectors, axis=0).max() <= TOLERANCE * np.abs(all_vectors).max()
        return len(texts) if are_equal else 0

    def check_bad_shards(self, cursor: Cursor, skips: Sequence[Skip]) -> None:
        """Report the shards skipped since the last step; raise SharedError if the cursor has too many in total."""
        limit = self.recipe.faults.most_bad_shards
        reasons = "; ".join(dict.fromkeys(skip.reason for skip in skips))
        if cursor.bad_shards > limit:
            raise SharedError(
                f"{cursor.bad_shards} bad shards, faults.most_bad_shards is {limit}; among them: {reasons}"
            )
        warn(f"bad shard {cursor.bad_shards} of at most {limit}, skipped: {reasons}")

    def _overflowed(self, result: StepResult) -> bool:
        return self.engine.fp16 and result.skipped

    def _count_overflow(self, overflow: bool) -> None:
        self.overflows = self.overflows + 1 if overflow else 0
        if self.overflows > MOST_OVERFLOWS:
            raise SharedError(
                f"fp16 overflow skipped {self.overflows} steps in a row: lower optimizer.lr, or train in bf16 or fp32"
            )

    def _count_zero_gradient(self, step: int, zero: bool) -> None:
        self.zero_gradients = self.zero_gradients + 1 if zero else 0
        if self.zero_gradients == MOST_ZERO_GRADIENTS:
            warn(
                f"step {step}: the gradient was zero in the last {MOST_ZERO_GRADIENTS} steps: nothing is learned: "
                "check method.pooling, the loss and the data, or end the run if its loss is as low as it should be"
            )

    def _describe(self, batch: LaneBatch, losses: list[float]) -> tuple[bool, str]:
        """Return whether the gradient alone is bad, and what is bad where."""
        bad_terms = ", ".join(
            f"the {term} loss is {loss}"
            for term, loss in zip(self.engine.terms, losses, strict=True)
            if not math.isfinite(loss)
        )
        source = f"{self.order.names[batch.source]} " if self.order.names[batch.source] else ""
        documents = list(dict.fromkeys(name for names in self.order.origins(batch) for name in names))
        unnamed = f" and {len(documents) - MOST_DOCUMENTS} more" if len(documents) > MOST_DOCUMENTS else ""
        place = f"micro-batch {batch.index}, {source}lane {batch.lane}"
        cause = bad_terms or "the gradient is not finite"
        return not bad_terms, f"{cause}: {place}, documents {'; '.join(documents[:MOST_DOCUMENTS])}{unnamed}"


def blame(losses: torch.Tensor, grad_norm: float, *, overflow: bool) -> list[int]:
    """Return the micro-batches to blame for a non-finite loss or gradient; empty if all are finite.

    losses: sums, fp32 [micro-batches, terms]. If only the gradient is not finite, every micro-batch is to blame,
    unless the cause is fp16's `overflow`.
    """
    blamed = (~torch.isfinite(losses).all(dim=1)).nonzero()[:, 0].tolist()
    if not blamed and not overflow and not math.isfinite(grad_norm):
        return list(range(len(losses)))
    return blamed
