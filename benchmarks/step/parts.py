"""Where the time of one optimizer step of the engine goes: trunk, heads, optimizer, communication, the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import machine
from benchmarks.common.collectives import replace_collectives
from benchmarks.common.step_cases import Step
from benchmarks.step.rivals import OurStep
from deepsiam.trainer.training.run.agree import exchange
from deepsiam.trainer.training.run.health import Health
from tests.flops import CPU_ATTENTION

PARTS = ("trunk", "heads", "optimizer", "communication", "rest")


class Clock:
    """Adds up seconds by part. One part runs at a time; the device finishes its work before the part changes."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.part, self.since = "rest", time.perf_counter()

    def switch(self, part: str) -> None:
        """End the current part and begin another."""
        machine.synchronize()
        now = time.perf_counter()
        self.seconds[self.part] += now - self.since
        self.part, self.since = part, now

    def within(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Count a function as a part; afterwards the previous part continues."""

        def timed(*arguments: Any, **options: Any) -> Any:
            before = self.part
            self.switch(part)
            try:
                return function(*arguments, **options)
            finally:
                self.switch(before)

        return timed


def time_parts(ours: OurStep, step: Step) -> dict[str, float]:
    """Take a step; return its seconds by part.

    trunk: its forward pass, and the backward pass from the moment that the gradient of its output is complete.
    heads: everything else in the model, forward and backward. Both include DeepSpeed's copying of their gradients.
    optimizer: DeepSpeed's step: norm, clipping, AdamW, casting. communication: the collectives that DeepSpeed calls.
    rest: copying the micro-batch to the device, and Python.
    """
    clock = Clock()
    with _attached(ours, clock):
        ours.take(step)
        clock.switch("rest")
    return clock.seconds


def exchange_share(ours: OurStep, step: Step) -> float:
    """Take a step and the loop's exchange after it; return the share of their time that the exchange takes.

    On a GPU the host waits there until the device has finished the step: the rest of the time it queues kernels, or
    waits inside DeepSpeed.
    """
    health = Health(None, ours.engine, None)  # type: ignore[arg-type]  # it reads neither for a sound step
    machine.synchronize()
    began = time.perf_counter()
    health.expect(1, [], ours.take(step))
    queued = time.perf_counter()
    exchange(ours.engine, health, [0])
    ended = time.perf_counter()
    return (ended - queued) / (ended - began)


def count_flops(ours: OurStep, step: Step) -> int:
    """Count the floating-point operations of all matrix products of a step, forward and backward."""
    with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counter:
        ours.take(step)
    return int(counter.get_total_flops())


@contextmanager
def _attached(ours: OurStep, clock: Clock) -> Iterator[None]:
    engine, model = ours.engine.deepspeed, ours.engine.model

    def leave_trunk(_: Any, __: Any, output: Any) -> None:
        clock.switch("heads")
        states: Tensor = output.last_hidden_state
        if states.requires_grad:
            states.register_hook(lambda _: clock.switch("trunk"))

    hooks = [
        model.register_forward_pre_hook(lambda *_: clock.switch("heads")),
        model.register_forward_hook(lambda *_: clock.switch("rest")),
        model.trunk.register_forward_pre_hook(lambda *_: clock.switch("trunk")),
        model.trunk.register_forward_hook(leave_trunk),
    ]
    with ExitStack() as replaced:
        for part, owner, names in (
            ("heads", engine, ("backward",)),
            ("optimizer", engine, ("step",)),
        ):
            for name in names:
                timed = clock.within(part, getattr(owner, name))
                replaced.enter_context(mock.patch.object(owner, name, timed))
        replaced.enter_context(replace_collectives(partial(clock.within, "communication")))
        yield
    for hook in hooks:
        hook.remove()
