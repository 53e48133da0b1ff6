"""Compare the communication of DeepSpeed's steps with the model of trainer.cluster.planning.communication.

    python -m benchmarks.scaling.communication [--hosts 2 4] [--stages 1 2 3] [--steps 2] [--out PATH]     (15 minutes)

The hosts are network namespaces with one rank each, made by tests/hosts.py, which needs root. `tc` limits their cables,
and a switch in user space delays frames. The steps are the engine's, in fp32 over gloo. For each number of hosts, ZeRO
stage, bandwidth and delay:

    bytes     sent by a host in a step, as its interface counts them (with headers: 1.1 % of frames of 9,000 bytes),
              compared with the model's
    seconds   by which a step is longer than one in which DeepSpeed computes but exchanges nothing, compared with the
              model's

Measurements are kept next to --out until all are made, so an interrupted benchmark resumes.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from benchmarks.common.measurements import Measurements
from benchmarks.common.side_by_side import in_words, write
from benchmarks.scaling.communication_ranks import ACCUMULATION, NetworkSettings
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.cluster.planning.communication import Link, Network, Zero, collectives, sent_by_host, step_seconds
from tests import hosts as test_hosts
from tests.hosts import CABLE, Hosts

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "communication.json"
BITS, DELAYS = (100e6, 50e6, 25e6), (0.0, 0.005)  # bits a second of a cable; seconds that a frame travels
# a frame of 9,014 bytes has 66 bytes of headers, and every second frame is acknowledged by a frame of 66 bytes
PAYLOAD = (9014 - 66) / (9014 + 66 / 2)
# avoid effects other than the cable's: BBR drains its path every ten seconds, and packets that wait long before a slow
# cable are sent twice
TCP = {"tcp_congestion_control": "reno", "tcp_limit_output_bytes": 131_072}
BUCKETS = {"reduce_bucket_size": 50_000_000, "allgather_bucket_size": 50_000_000}
ZERO: dict[int, dict[str, Any]] = {
    1: {"stage": 1, **BUCKETS},
    2: {"stage": 2, **BUCKETS},
    3: {"stage": 3, "reduce_bucket_size": 50_000_000, "stage3_param_persistence_threshold": 10_000},
}  # as in ds_configs, in fp32


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=positive, nargs="+", default=[2, 4], help="numbers of them (%(default)s)")
    parser.add_argument("--stages", type=int, nargs="+", choices=list(ZERO), default=list(ZERO), help="(%(default)s)")
    parser.add_argument("--steps", type=positive, default=2, help="for each network (%(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="(%(default)s)")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    kept: Measurements[dict[str, Any]] = Measurements(options.out.with_suffix(".measured.json"))
    make_directory(options.out.parent)
    with exit_on_input_error("benchmarks.scaling.communication"):
        for number in options.hosts:
            with tempfile.TemporaryDirectory() as name, cluster(Path(name), number) as hosts:
                for stage in options.stages:
                    measured = kept.get(f"{number} hosts, ZeRO-{stage}", partial(run, hosts, stage, options.steps))
                    rows += compare(measured, number, stage)
                    for row in rows[-len(BITS) * len(DELAYS) :]:
                        print(line_of(row), flush=True)
        summary = {what: spread_of(rows, what) for what in ("bytes", "seconds")}
        for what, numbers in summary.items():
            print(in_words(f"{what}: measured / model", numbers))
        write(options.out, {"machine": machine.describe(), **summary, "rows": rows})
        kept.path.unlink()


@contextmanager
def cluster(folder: Path, number: int) -> Iterator[Hosts]:
    """Yield hosts whose frames are delayed by the seconds in the file `delay`; raise InputError where impossible."""
    with test_hosts.network(folder, number) as hosts:
        for host in range(number):
            for name, value in TCP.items():
                write_value = ["sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}"]
                subprocess.run(hosts.on(host, write_value), check=True)
        (folder / "delay").write_text("0")
        names = [f"{name}={address}" for name, address in zip(hosts.names, hosts.addresses, strict=True)]
        command = [sys.executable, "-m", "benchmarks.scaling.delayed_switch", str(folder / "delay"), CABLE, *names]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as switch:
            assert switch.stdout
            try:
                if switch.stdout.readline() != "ready\n":
                    raise InputError("the hosts' cables cannot be replaced by TAP devices here")
                yield hosts
            finally:
                switch.terminate()


def run(hosts: Hosts, stage: int, steps: int) -> dict[str, Any]:
    """Let the ranks take their steps on every network; return what they measured."""
    here = hosts.here
    (here / "zero.json").write_text(json.dumps({"zero_optimization": ZERO[stage]}))
    settings = NetworkSettings(
        deepspeed=str(here / "zero.json"),
        cable=CABLE,
        networks=[(bits, delay) for delay in DELAYS for bits in BITS],
        steps=steps,
        delay_file=str(here / "delay"),
        out=str(here / "out.json"),
    )
    (here / "settings.json").write_text(json.dumps(asdict(settings)))
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--hostfile", str(hosts.hostfile), "--module"]
    command = hosts.on_first([*launcher, "benchmarks.scaling.communication_ranks", str(here / "settings.json")])
    done = subprocess.run(
        command, cwd=ROOT, env=hosts.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if not Path(settings.out).exists():
        raise InputError(f"ZeRO-{stage} on {len(hosts.names)} hosts failed: {done.stdout[-500:]}")
    measured: dict[str, Any] = json.loads(Path(settings.out).read_text())
    Path(settings.out).unlink()
    return measured


def compare(measured: Mapping[str, Any], hosts: int, stage: int) -> list[dict[str, Any]]:
    """Return for each limited network what was measured, what the model predicts, and their ratios."""
    alone = statistics.median(measured["without_exchange"])
    step = collectives(measured["sizes"], Zero.from_config({"zero_optimization": ZERO[stage]}), ACCUMULATION, "gloo")
    rows = []
    for one in measured["networks"]:
        link = Link(one["bits"] / 8 * PAYLOAD, one["delay"])
        network = Network(hosts, 1, between=link, within=link, backend="gloo")
        numbers = {
            "bytes": (max(one["bytes"]), sent_by_host(step, network)),
            "seconds": (statistics.median(one["seconds"]) - alone, step_seconds(step, network)),
        }
        row = {"hosts": hosts, "stage": stage, "bits": one["bits"], "delay": one["delay"], "without_exchange": alone}
        for what, (found, expected) in numbers.items():
            row[what] = {"measured": found, "model": expected, "ratio": found / expected}
        rows.append({**row, "step_seconds": one["seconds"], "sum_of_one_number": one["sum_of_one_number"]})
    return rows


def spread_of(rows: Sequence[Mapping[str, Any]], what: str) -> dict[str, float]:
    """Return min, median and max of the ratio of the measured value to the model's."""
    ratios = [row[what]["ratio"] for row in rows]
    return {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)}


def line_of(row: Mapping[str, Any]) -> str:
    """Format one line of the table."""
    size, seconds = row["bytes"], row["seconds"]
    return (
        f"{row['hosts']} hosts  ZeRO-{row['stage']}  {row['bits'] / 1e6:>4.0f} Mbit/s  {1000 * row['delay']:.0f} ms  "
        f"{size['measured'] / 1e6:6.2f} MB ({size['ratio']:.3f} of the model)  "
        f"{seconds['measured']:6.2f} s ({seconds['ratio']:.3f}), and {row['without_exchange']:.2f} s without"
    )


if __name__ == "__main__":
    main()
