"""trainer.pretrain with an injected fault, for fault tests: `--module tests.trainer.tampered RECIPE`.

TAMPER=poison    the loss of a micro-batch that holds the token id POISON is NaN
TAMPER=hang      rank 1 hangs before its 6th step
TAMPER=impatient a shard that cannot be read is read again at once
TAMPER=witness   every rank appends the digests of the micro-batches that it trains on to WITNESS.<rank>
"""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from deepsiam.models.pretraining.seed import Seed
from deepsiam.trainer import pretrain
from deepsiam.trainer.jobs.trace import digest
from deepsiam.trainer.training.data import shard_source
from deepsiam.trainer.training.engine.engine import Engine


def poison(forward: Callable[..., dict[str, torch.Tensor]]) -> Callable[..., dict[str, torch.Tensor]]:
    def poisoned(self: Seed, **arrays: torch.Tensor) -> dict[str, torch.Tensor]:
        losses = forward(self, **arrays)
        bad = (arrays["original_ids"] == int(os.environ["POISON"])).any()
        return {**losses, "mlm": losses["mlm"] * (float("nan") if bad else 1.0)}

    return poisoned


def hang(step: Callable[..., Any]) -> Callable[..., Any]:
    steps = iter(range(1000))

    def hanging(self: Engine, *arguments: Any) -> Any:
        if next(steps) == 5 and self.world.rank == 1:
            time.sleep(600)
        return step(self, *arguments)

    return hanging


def witness(step: Callable[..., Any]) -> Callable[..., Any]:
    def witnessed(self: Engine, micro_batches: Any, *arguments: Any) -> Any:
        with open(f"{os.environ['WITNESS']}.{self.world.rank}", "a") as file:
            file.write(" ".join(digest([micro_batch]) for micro_batch in micro_batches) + "\n")
        return step(self, micro_batches, *arguments)

    return witnessed


if __name__ == "__main__":
    if os.environ["TAMPER"] == "poison":
        Seed.forward = poison(Seed.forward)  # type: ignore[method-assign]
    elif os.environ["TAMPER"] == "impatient":
        shard_source.RETRIES = (0.0, 0.0)
    else:
        Engine.step = {"hang": hang, "witness": witness}[os.environ["TAMPER"]](Engine.step)  # type: ignore[method-assign]
    pretrain.main()
