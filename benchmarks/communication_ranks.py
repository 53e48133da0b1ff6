"""One rank of benchmarks.communication: takes optimizer steps while its host's cable is limited, and counts its bytes.

DeepSpeed's launcher starts it with a file of settings (`Settings` as JSON); rank 0 writes what all ranks measured.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.step_cases import Step, recipe_of, workload_of
from trainer.engine.engine import Engine
from trainer.engine.world import World, join

ACCUMULATION = 2  # micro-batches of a rank and step
MODEL = "mlm-512"  # of benchmarks.step_cases: many weights, and with so short sequences little to compute
CHANGES = ("batch.micro=1", "method.max_tokens=32")
QUEUE = ("burst", "64kb", "limit", "64mb")  # so long that the sender drops nothing, as a network card
SETTLE_SECONDS = 0.3  # until the switch has read another delay
SUMS = 10  # of one number, for the latency


@dataclass(frozen=True)
class Settings:
    """What the ranks do."""

    deepspeed: str  # a file
    cable: str  # the interface of every host
    networks: list[tuple[float | None, float]]  # bits a second (None: no limit) and seconds of delay, in turn
    steps: int  # for each network
    delay_file: str  # of benchmarks.delayed_switch
    out: str


def main() -> None:
    """Run one rank."""
    settings = Settings(**json.loads(Path(sys.argv[-1]).read_text()))
    world = World.from_environment()
    join(world)
    recipe = recipe_of(
        MODEL,
        gpu=False,
        changes=[*CHANGES, f"batch.size={ACCUMULATION * world.size}", f"deepspeed={settings.deepspeed}"],
    )
    workload = workload_of(recipe)
    model = workload.model()
    sizes = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    engine = Engine(model, recipe, world)
    own = slice(ACCUMULATION * world.rank, ACCUMULATION * (world.rank + 1))
    step = workload.steps[0]
    take(engine, step, own)  # the first one allocates
    networks = [
        {"bits": bits, "delay": delay, **measure(engine, step, own, settings, bits, delay)}
        for bits, delay in settings.networks
    ]
    limit(settings.cable, None)
    if world.rank == 0:
        Path(settings.out).write_text(json.dumps({"sizes": sizes, "networks": networks}))
    dist.barrier()
    os._exit(0)  # a live process-group thread may abort the interpreter's shutdown


def measure(
    engine: Engine, step: Step, own: slice, settings: Settings, bits: float | None, delay: float
) -> dict[str, Any]:
    """Take steps over a network; return the seconds of each, and the bytes that every host sent for one."""
    limit(settings.cable, bits)
    if engine.world.rank == 0:
        Path(settings.delay_file).write_text(str(delay))
    time.sleep(SETTLE_SECONDS)
    latency = statistics.median(timed(lambda: dist.all_reduce(torch.ones(1))) for _ in range(SUMS))
    take(engine, step, own)  # connections get used to the network
    dist.barrier()
    before = sent(settings.cable)
    seconds = [timed(lambda: take(engine, step, own)) for _ in range(settings.steps)]
    used = torch.zeros(engine.world.size, dtype=torch.float64)
    used[engine.world.rank] = (sent(settings.cable) - before) / settings.steps
    dist.all_reduce(used)
    return {"seconds": seconds, "bytes": used.tolist(), "sum_of_one_number": latency}


def take(engine: Engine, step: Step, own: slice) -> None:
    """Take a step on this rank's micro-batches."""
    engine.step(step.micro_batches[own], step.targets, step.seeds[own], lr=1e-4)


def timed(function: Any) -> float:
    """Seconds of a function that all ranks call, of the slowest."""
    dist.barrier()
    start = time.perf_counter()
    function()
    seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds)


def sent(cable: str) -> int:
    """The bytes that this host has sent, with the headers of its frames."""
    return int(Path(f"/sys/class/net/{cable}/statistics/tx_bytes").read_text())


def limit(cable: str, bits: float | None) -> None:
    """Limit what this host sends to so many bits a second."""
    tc = shutil.which("tc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "tc"
    subprocess.run([tc, "qdisc", "delete", "dev", cable, "root"], capture_output=True)  # there may be none
    if bits:
        subprocess.run([tc, "qdisc", "add", "dev", cable, "root", "tbf", "rate", f"{bits:.0f}bit", *QUEUE], check=True)


if __name__ == "__main__":
    main()
