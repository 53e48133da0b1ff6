"""What more ranks and hosts bring and cost: scaling on cores, start-up, a host's death, checkpoints.

    python -m benchmarks.scaling [--parts ...] [--minutes 25] [--sizes JSON] [--out FILE.json]

ranks        weak and strong scaling from one rank to two, a core each, ZeRO-1 in fp32, through gloo: seconds of a step
             of SEED at the demo's size by the micro-batches of a rank; and of two runs that do not wait for each other
start        seconds from the command to the first step, by the number of hosts, all of them on one machine's cores
death        seconds from pulling a cable to the next step of a supervised run, in parts
checkpoints  seconds of a checkpoint by its size, compared with torch.save of as many bytes (benchmarks.scaling.saving)

`start` and `death` use hosts in network namespaces (tests/hosts.py), and need root.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from benchmarks.common.side_by_side import TooLongError, in_words, part_options, ratios, run_parts, spread
from benchmarks.scaling import hosts, ranks
from benchmarks.scaling.saving import measure_code
from deepsiam.data_prep.common.errors import exit_on_input_error

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class CheckpointSizes:
    """Matrices of `hidden` x `hidden`; a checkpoint has 16 bytes per weight."""

    hidden: int
    layers: Sequence[int]
    rounds: int


SIZES: dict[str, Any] = {
    "ranks": ranks.RankSettings(micro=4, accumulations=(1, 2, 4, 8, 16), steps=2),
    "start": hosts.StartSizes(hosts=(1, 2, 4)),
    "death": hosts.DeathSizes(hosts=2, at=8, hang_seconds=10),
    "checkpoints": CheckpointSizes(hidden=1024, layers=(1, 4, 16, 48), rounds=3),
}


def checkpoints(sizes: CheckpointSizes, seconds: float) -> dict[str, Any]:
    """Save checkpoints of growing size in turn; return seconds, and the ratio to torch.save, by bytes."""
    end, began = time.monotonic() + seconds, time.monotonic()
    saved: dict[int, dict[str, list[float]]] = {}
    for number in range(sizes.rounds):
        for layers in sizes.layers:
            found = measure_code(ROOT, ["--hidden", str(sizes.hidden), "--layers", str(layers)])
            own = saved.setdefault(found["bytes"], {"deepsiam": [], "torch": []})
            for name, values in own.items():
                values += found["save"]["seconds"][name]
        if number == 0 and (time.monotonic() - began) * (sizes.rounds - 1) > end - time.monotonic():
            raise TooLongError(f"a round takes {time.monotonic() - began:.0f} s")
    return {
        "seconds": saved,
        "spread": {f"{size / 1e6:,.0f} MB": spread(one["deepsiam"]) for size, one in saved.items()},
        "ratios": {f"{size / 1e6:,.0f} MB": ratios(one["deepsiam"], one["torch"]) for size, one in saved.items()},
    }


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "ranks": ranks.measure,
    "start": hosts.start_up,
    "death": hosts.death,
    "checkpoints": checkpoints,
}


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    chosen = part_options(argv, "benchmarks.scaling", __doc__ or "", PARTS, minutes=25.0, out="scaling.json")
    with exit_on_input_error("benchmarks.scaling"):
        run_parts(chosen, PARTS, SIZES, machine.describe(), lines_of)


def lines_of(part: str, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines to print for a part."""
    for name in ("weak", "possible", "strong"):
        for size, numbers in results.get(name, {}).items():
            yield in_words(f"{part}: {name}, {size} micro-batches", numbers)
    if "break_even" in results:
        yield f"{part}: two ranks are faster than one from {results['break_even'] or math.inf} micro-batches a step on"
    for name, numbers in results.get("spread", {}).items():
        yield in_words(f"{part}: {name}", numbers, "s")
    for name, numbers in results.get("ratios", {}).items():
        yield in_words(f"{part}: {name}, to torch.save", numbers)


if __name__ == "__main__":
    main()
