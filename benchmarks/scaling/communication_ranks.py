"""One rank of benchmarks.scaling.communication: takes steps while its host's cable is limited, and counts its bytes.

DeepSpeed's launcher starts it with a file of `NetworkSettings` as JSON; rank 0 writes what all ranks measured.
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

from benchmarks.scaling.rank_steps import RankSteps, end, timed, without_exchange
from deepsiam.data_prep.common.files import whole_file
from deepsiam.trainer.training.engine.world import World, join

ACCUMULATION = 2  # micro-batches that a rank has in a step
MODEL = "mlm-512"  # of benchmarks.common.step_cases: many weights, and little to compute with such short sequences
SHORT = "method.max_tokens=32"
QUEUE = ("burst", "64kb", "limit", "64mb")  # of the limit: like a network card, the sender drops nothing
SETTLE_SECONDS = 0.3  # until the switch has read a new delay
SUMS = 10  # sums of one number, to measure the latency


@dataclass(frozen=True)
class NetworkSettings:
    """What the ranks must do."""

    deepspeed: str  # a file
    cable: str  # the interface of every host
    networks: list[tuple[float, float]]  # bits a second and seconds of delay of each network, used in turn
    steps: int  # on each network
    delay_file: str  # of benchmarks.scaling.delayed_switch
    out: str


def main() -> None:
    """Run one rank."""
    settings = NetworkSettings(**json.loads(Path(sys.argv[-1]).read_text()))
    world = World.from_environment()
    join(world)
    steps = RankSteps(MODEL, [SHORT, f"deepspeed={settings.deepspeed}"], 1, ACCUMULATION, world)
    steps.take()  # the first one allocates
    networks = [
        {"bits": bits, "delay": delay, **measure(steps, world, settings, bits, delay)}
        for bits, delay in settings.networks
    ]
    limit(settings.cable, None)
    with without_exchange():
        alone = [timed(steps.take) for _ in range(1 + settings.steps)][1:]
    if world.rank == 0:
        found = {"sizes": steps.sizes, "networks": networks, "without_exchange": alone}
        Path(settings.out).write_text(json.dumps(found))
    end()


def measure(steps: RankSteps, world: World, settings: NetworkSettings, bits: float, delay: float) -> dict[str, Any]:
    """Take steps on a network; return the seconds of each, and the bytes that every host sent per step."""
    limit(settings.cable, bits)
    if world.rank == 0:
        with whole_file(Path(settings.delay_file)) as file:  # the switch may read it at any time
            file.write(str(delay).encode())
    time.sleep(SETTLE_SECONDS)
    latency = statistics.median(timed(lambda: dist.all_reduce(torch.ones(1))) for _ in range(SUMS))
    steps.take()  # connections get used to the network
    dist.barrier()
    before = sent(settings.cable)
    seconds = [timed(steps.take) for _ in range(settings.steps)]
    used = torch.zeros(world.size, dtype=torch.float64)
    used[world.rank] = (sent(settings.cable) - before) / settings.steps
    dist.all_reduce(used)
    return {"seconds": seconds, "bytes": used.tolist(), "sum_of_one_number": latency}


def sent(cable: str) -> int:
    """Return the bytes that this host has sent, with the headers of its frames."""
    return int(Path(f"/sys/class/net/{cable}/statistics/tx_bytes").read_text())


def limit(cable: str, bits: float | None) -> None:
    """Limit what this host sends to `bits` bits a second."""
    tc = shutil.which("tc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "tc"
    subprocess.run([tc, "qdisc", "delete", "dev", cable, "root"], capture_output=True)  # there may be none
    if bits:
        subprocess.run([tc, "qdisc", "add", "dev", cable, "root", "tbf", "rate", f"{bits:.0f}bit", *QUEUE], check=True)


if __name__ == "__main__":
    main()
