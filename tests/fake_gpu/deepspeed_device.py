"""DeepSpeed's view of the fake GPU, and of seven other ranks that answer at once; in a process of its own."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import nullcontext
from typing import Any

import deepspeed
import deepspeed.accelerator.real_accelerator as real
import deepspeed.comm
import deepspeed.runtime.zero.partitioned_param_coordinator as coordinator
import torch
import torch.distributed as dist
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from deepsiam.trainer.training.engine import optimizer
from tests.fake_gpu.device import GPU
from tests.fake_gpu.watch import Watch

RANKS = 8
ENVIRONMENT = {
    "RANK": "0",
    "WORLD_SIZE": str(RANKS),
    "LOCAL_RANK": "0",
    "LOCAL_SIZE": str(RANKS),
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}
COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "allgather_fn",
    "barrier",
    "broadcast",
    "reduce",
    "reduce_scatter_fn",
    "reduce_scatter_tensor",
)


class Queued:
    """A queue of the GPU, a mark in one, or a collective that is over: the host waits only where it synchronizes."""

    def __init__(self, **_: object) -> None: ...

    wait = wait_stream = wait_event = record = lambda self, *_: None
    query = lambda self: True  # noqa: E731

    def synchronize(self) -> None:
        """Let the host wait."""
        Watch.current.wait(type(self).__name__.lower())


class Stream(Queued):
    """A queue of the GPU."""


class Event(Queued):
    """A mark in a queue of the GPU."""


class Accelerator(CPU_Accelerator):  # type: ignore[misc]
    """The fake GPU: like CUDA, with queues that the host does not wait for."""

    Stream, Event = Stream, Event
    device_name = lambda self, index=None: GPU if index is None else f"{GPU}:{index}"  # noqa: E731
    current_device_name = lambda self: f"{GPU}:0"  # noqa: E731
    current_device = lambda self: 0  # noqa: E731
    device_count = lambda self: RANKS  # noqa: E731
    communication_backend_name = lambda self: "fake"  # noqa: E731
    is_fp16_supported = is_bf16_supported = lambda self: True  # noqa: E731
    is_synchronized_device = use_host_timers = lambda self: False
    resolves_data_dependency = handles_memory_backpressure = lambda self: False
    device = stream = lambda self, *_: nullcontext()  # noqa: E731
    current_stream = default_stream = lambda self, *_: Stream()  # noqa: E731
    on_accelerator = lambda self, tensor: tensor.device.type == GPU  # noqa: E731

    def synchronize(self, *_: object) -> None:
        """Let the host wait for the whole device."""
        Watch.current.wait("device")


def install() -> None:
    """Make this process rank 0 of 8, with the fake GPU as DeepSpeed's accelerator."""
    real.ds_accelerator = Accelerator()
    os.environ |= ENVIRONMENT
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())  # type: ignore[no-untyped-call]
    for owner in (dist, dist.distributed_c10d, deepspeed.comm, deepspeed.comm.comm):
        for name in COLLECTIVES:
            if hasattr(owner, name):
                setattr(owner, name, _answered)
    coordinator.assert_ints_same_as_other_ranks = lambda *_: None
    nn.Module._apply = lambda self, *_, **__: self  # type: ignore[method-assign]  # the model is on the GPU already
    deepspeed.ops.__compatible_ops__ = defaultdict(bool)
    optimizer.this_device = lambda: torch.device("cuda")  # AdamW is fused, as there


def _answered(*_: Any, **__: Any) -> Queued:
    return Queued()
