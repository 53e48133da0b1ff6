"""This process among all ranks: its rank, how it joins the others, its device's memory."""

from __future__ import annotations

import logging
import os
import warnings
from collections import defaultdict
from dataclasses import dataclass

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

from data_prep.common.errors import InputError


@dataclass(frozen=True)
class World:
    """The place of this process: global rank, number of ranks, rank and number of ranks on this host."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def from_environment(cls) -> World:
        """Read the launcher's environment variables; without a launcher, one process alone."""
        names = {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "LOCAL_SIZE": os.environ.get("WORLD_SIZE", "1"),
        }
        return cls(*(int(os.environ.get(name, default)) for name, default in names.items()))


def device_memory() -> int:
    """Bytes of memory of this rank's accelerator; on a CPU, its share of the host's."""
    accelerator = get_accelerator()
    total = int(accelerator.total_memory())
    return total // World.from_environment().local_size if accelerator.device_name() == "cpu" else total


_joined = False


def has_joined() -> bool:
    """Whether this process has joined the other ranks."""
    return _joined


def join(world: World) -> None:
    """Join the other ranks; raise InputError where the rendezvous port is in use."""
    for name, value in {"RANK": world.rank, "WORLD_SIZE": world.size, "LOCAL_RANK": world.local_rank}.items():
        os.environ[name] = str(value)
    address = os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    port = os.environ.setdefault("MASTER_PORT", "29500")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # DeepSpeed uses names of collectives that newer torch has renamed; users cannot act on the warning
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # CPU ranks use gloo alone; DeepSpeed's shared-memory kernel would need a C++ compiler at start. Its question which
    # of its kernels could be built here is answered for all of them, as it would start compilers to find out
    deepspeed.ops.__compatible_ops__ = defaultdict(bool)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world.local_size))
    get_accelerator().set_device(world.local_rank)  # else models that no engine holds would share the first one
    global _joined
    try:
        deepspeed.init_distributed(verbose=False)
    except (dist.DistNetworkError, RuntimeError) as error:
        if "EADDRINUSE" not in str(error) and "address already in use" not in str(error):
            raise
        raise InputError(
            f"port {port} of {address} is in use, perhaps by another run: give deepspeed another --master_port"
        ) from None
    _joined = True
