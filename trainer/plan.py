"""Plan a training on machines that you do not have: computed, not measured.

python -m trainer.plan RECIPE [key=value ...] --hosts 1,8,64,128 --gpus 8 --gpu h100

Nothing is trained, and the recipe's data need not exist. docs/scaling.md explains what the model takes into account.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from deepsiam.data_prep.common.argument_types import margin, positive, positive_number, share
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import (
    in_a_folder,
    os_errors_as_input_errors,
    read_bytes,
    refuse_folder,
    whole_file,
)
from deepsiam.data_prep.common.imports import gc_paused
from deepsiam.data_prep.common.parser import Parser

with gc_paused():
    from deepsiam.trainer.analysis.plans import draw
    from deepsiam.trainer.cluster.planning import report
    from deepsiam.trainer.cluster.planning.communication import Link
    from deepsiam.trainer.cluster.planning.compute import MeasuredSpeed, count, measured_speed, vocabulary_of
    from deepsiam.trainer.cluster.planning.machines import Machines
    from deepsiam.trainer.cluster.planning.roofline import LAUNCH, PRODUCTS, START, Roofline
    from deepsiam.trainer.cluster.planning.training import limits, plan
    from deepsiam.trainer.training.engine import ds_config
    from deepsiam.trainer.training.engine.hardware import DEVICES, WITHOUT_BF16
    from deepsiam.trainer.training.recipe.schema import PretrainRecipe, kind_of
    from deepsiam.trainer.training.recipe.yaml_file import build, read

GB, MICROSECOND = 1e9, 1e-6


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    chosen = _parser().parse_intermixed_args(argv)
    with exit_on_input_error("trainer.plan"):
        if chosen.chart:
            require("evaluate", "matplotlib", what="--chart")
        for path in filter(None, (chosen.json, chosen.chart)):
            refuse_folder(path)
            in_a_folder(path)
        _plan(chosen)


def _plan(chosen: argparse.Namespace) -> None:
    recipe = _recipe(chosen.recipe, chosen.overrides)
    usual = "cpu" if chosen.gpu == "cpu" else "zero1_fp16" if chosen.gpu.startswith(WITHOUT_BF16) else "zero1_bf16"
    file, config = ds_config.load(usual if recipe.deepspeed == "auto" else recipe.deepspeed, for_here=False)
    if chosen.gpu != "cpu" and ds_config.precision(config) == torch.float32:
        raise InputError(
            f"deepspeed: {file.stem} computes in fp32, and of a GPU the speed in half precision is known: "
            f"plan with deepspeed={usual}"
        )
    work = count(recipe, vocabulary_of(recipe, chosen.vocabulary), ds_config.precision(config))
    machines, speed = _machines(chosen, recipe)
    assumptions = [
        f"{recipe.method.name}: {work.parameters:,} parameters, {work.flops / 1e9:,.4g} GFLOP an example, {file.stem}",
        *report.of_machines(machines, speed),
    ]
    rows = [plan(recipe, work, config, machines, hosts) for hosts in chosen.hosts]
    ends = limits(recipe, work, config, machines, max(chosen.hosts))
    print(report.training(rows, ends, assumptions))
    results = {"assumptions": assumptions, "rows": [asdict(row) for row in rows], "pays": [asdict(one) for one in ends]}
    if chosen.json:
        with whole_file(chosen.json) as out:
            out.write(json.dumps(results, indent=1).encode() + b"\n")
    if chosen.chart:
        print(draw(rows, chosen.chart))


def _recipe(path: Path, overrides: Sequence[str]) -> PretrainRecipe:
    values = read(path, overrides)
    if kind_of(values) is not PretrainRecipe:
        raise InputError(f"{path}: fine-tunes; a plan is for pre-training: name such a recipe")
    return build(PretrainRecipe, values, str(path))


def _machines(chosen: argparse.Namespace, recipe: PretrainRecipe) -> tuple[Machines, str]:
    """Return the machines that the options describe, and where their speed is from."""
    device, cpu = DEVICES[chosen.gpu], chosen.gpu == "cpu"
    latencies = {"between": 100.0, "within": 30.0} if cpu else {"between": 10.0, "within": 3.0}
    links = {
        name: Link(
            bandwidth * GB if bandwidth else chosen.link_share * line,
            MICROSECOND * (latencies[name] if latency is None else latency),
        )
        for name, bandwidth, latency, line in (
            ("between", chosen.network, chosen.latency, device.network),
            ("within", chosen.within, chosen.within_latency, device.within),
        )
    }
    speed: Roofline | MeasuredSpeed
    if chosen.measured:
        speed = measured_speed(_json(chosen.measured), recipe, chosen.case, str(chosen.measured))
        said = f"{speed.flops / 1e12:.4g} TFLOP/s a rank, measured: {chosen.measured}"
    else:
        speed = Roofline(device, chosen.efficiency, start=chosen.operation * MICROSECOND, launch=LAUNCH * (not cpu))
        said = f"{chosen.gpu}, assumed: {speed.assumptions()}"
    machines = Machines(
        gpus=chosen.gpus,
        device=device,
        speed=speed,
        between=links["between"],
        within=links["within"],
        backend="gloo" if cpu else "nccl",
        overlap=chosen.overlap,
        disk=chosen.disk * GB,
    )
    return machines, said


def _json(path: Path) -> Any:
    with os_errors_as_input_errors(path, "read"):
        content = read_bytes(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None


def _numbers(text: str) -> list[int]:
    return sorted({positive(word) for word in text.split(",")})


def _efficiency(text: str) -> float:
    if (value := positive_number(text)) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0, up to 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trainer.plan", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="recipe of a pre-training")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as batch.micro=4")
    parser.add_argument(
        "--hosts", type=_numbers, default=[1], metavar="N,N,...", help="numbers of hosts to plan for (1)"
    )
    parser.add_argument("--gpus", type=positive, default=8, help="ranks on each host (%(default)s)")
    parser.add_argument("--gpu", choices=DEVICES, default="h100", help="device of a rank (%(default)s)")
    parser.add_argument("--vocabulary", type=positive, help="size of the vocabulary, in place of trunk.vocab_size")
    compute = parser.add_argument_group("compute")
    compute.add_argument(
        "--efficiency", type=_efficiency, default=PRODUCTS, help="share of the peak that products attain (%(default)s)"
    )
    compute.add_argument(
        "--operation",
        type=margin,
        default=START / MICROSECOND,
        help="us that Python takes to start a kernel (%(default)g)",
    )
    compute.add_argument("--measured", type=Path, help="JSON of benchmarks.step, instead of these two")
    compute.add_argument("--case", help="case in that file (the last one with the recipe's method)")
    links = parser.add_argument_group("links: bandwidth in GB/s and direction, latency in us a message")
    links.add_argument(
        "--network", type=positive_number, help="bandwidth between hosts (that of servers with this GPU)"
    )
    links.add_argument("--latency", type=margin, help="latency between hosts (10; with --gpu cpu 100)")
    links.add_argument("--within", type=positive_number, help="bandwidth between ranks of a host (that of the GPU)")
    links.add_argument("--within-latency", type=margin, help="latency within a host (3; with --gpu cpu 30)")
    links.add_argument(
        "--link-share", type=_efficiency, default=0.8, help="attained share of both bandwidths (%(default)s)"
    )
    links.add_argument(
        "--overlap", type=share, help="share of communication that overlaps with compute (0.5 for ZeRO-3, else 0)"
    )
    parser.add_argument(
        "--disk", type=positive_number, default=2.0, help="GB/s of shards that a host reads (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the plan as JSON")
    parser.add_argument("--chart", type=Path, metavar="FILE.png", help="draw the plan")
    return parser


if __name__ == "__main__":
    main()
