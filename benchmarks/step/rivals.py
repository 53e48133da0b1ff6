"""The rivals of benchmarks.step: ways to take the same optimizer step of the same model.

Each has `step()`, which takes the next step of the workload and returns its seconds, including the device's work.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from functools import partial
from itertools import cycle

import torch
from torch import Tensor

from benchmarks.common import machine
from benchmarks.common.step_cases import Step, Workload
from benchmarks.step.plain_way import plain_batch, plain_layers
from deepsiam.trainer.training.engine.engine import Engine, StepResult
from deepsiam.trainer.training.engine.optimizer import build_optimizer
from deepsiam.trainer.training.engine.world import World

LOSS_SCALE = 2.0**16  # of the bare loop in fp16: DeepSpeed's initial one


class StepRival(ABC):
    """A way to take the workload's steps repeatedly."""

    skipped = False  # whether the last step overflowed, and changed nothing

    def __init__(self, workload: Workload) -> None:
        self.length = len(workload.steps)

    @abstractmethod
    def step(self) -> float:
        """Take the next step; return its seconds."""

    def round(self) -> float:
        """Take every step of the workload once; return the seconds of a step."""
        return sum(self.step() for _ in range(self.length)) / self.length

    def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """End what runs in the background."""


class TimedRival(StepRival):
    """A rival that is handed its steps, and is timed from outside."""

    losses: Tensor  # the sums of the last step's loss terms, fp32 [micro-batches, terms]

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.recipe, self.steps = workload.recipe, cycle(workload.steps)

    def step(self) -> float:
        step = next(self.steps)
        machine.synchronize()
        start = time.perf_counter()
        self.take(step)
        machine.synchronize()
        return time.perf_counter() - start

    @abstractmethod
    def take(self, step: Step) -> object:
        """Take one optimizer step."""


class OurStep(TimedRival):
    """The trainer's own engine."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.engine = Engine(workload.model(), workload.recipe, World.from_environment())

    def take(self, step: Step) -> StepResult:
        objectives = [step.objective(self.engine.methods)] * len(step.micro_batches)
        result = self.engine.step(step.micro_batches, objectives, step.seeds, self.recipe.optimizer.lr)
        self.losses, self.skipped = result.losses, result.skipped
        return result

    def close(self) -> None:
        self.engine.deepspeed.destroy()


class Plain(OurStep):
    """The same engine with a plain first implementation of the model: full logits, full masks, full-length inputs."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        plain = partial(plain_batch, self.recipe.method)
        self.steps = cycle([Step(list(map(plain, step.micro_batches)), step.seeds) for step in workload.steps])

    def take(self, step: Step) -> StepResult:
        with plain_layers():
            return super().take(step)


class Bare(TimedRival):
    """Our model in a loop without DeepSpeed: half-precision weights, gradients summed in them, fp32 master copies."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        dtype = workload.precision
        self.scale = LOSS_SCALE if dtype == torch.float16 else 1.0
        self.model = workload.model().to(machine.device(), dtype).train()
        self.optimizer = build_optimizer(self.model, self.recipe.optimizer)
        self.weights = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.masters = self.weights
        if dtype != torch.float32:
            self.masters = [weight.detach().float().requires_grad_() for weight in self.weights]
            masters = iter(self.masters)
            for group in self.optimizer.param_groups:
                group["params"] = [next(masters) for _ in group["params"]]

    def take(self, step: Step) -> None:
        losses = []
        for batch, seed in zip(step.micro_batches, step.seeds, strict=True):
            torch.manual_seed(seed)
            arrays = {k: torch.from_numpy(v).to(machine.device(), non_blocking=True) for k, v in batch.arrays.items()}
            sums = self.model(**arrays)
            losses.append(torch.stack([sums[term].detach() for term in self.recipe.method.weights]))
            weights = self.recipe.method.weights.items()
            total = sum(weight * (sums[term] / max(1, step.targets[term])) for term, weight in weights)
            (total * self.scale).backward()
        self.losses = torch.stack(losses)
        self._update()

    def _update(self) -> None:
        if self.masters is not self.weights:
            for master, weight in zip(self.masters, self.weights, strict=True):
                master.grad = None if weight.grad is None else weight.grad.float()
        grads = [master.grad for master in self.masters if master.grad is not None]
        if self.scale != 1.0:
            torch._foreach_div_(grads, self.scale)
        norm = torch.nn.utils.clip_grad_norm_(self.masters, self.recipe.optimizer.clip or math.inf, foreach=True)
        self.skipped = not math.isfinite(norm.item())
        if self.skipped:  # as in DeepSpeed
            self.scale /= 2
        else:
            self.optimizer.step()
            if self.masters is not self.weights:
                with torch.no_grad():
                    torch._foreach_copy_(self.weights, self.masters)
        for weight in self.weights:
            weight.grad = None
