"""The plan of a recipe on machines that options describe; what `trainer.plan` prints, writes and draws."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import in_a_folder, read_bytes, refuse_folder, whole_file
from deepsiam.trainer.cluster.planning import report
from deepsiam.trainer.cluster.planning.communication import Link
from deepsiam.trainer.cluster.planning.compute import MeasuredSpeed, count, measured_speed, vocabulary_of
from deepsiam.trainer.cluster.planning.roofline import Roofline
from deepsiam.trainer.cluster.planning.training import Machines, limits, plan
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.hardware import DEVICES, LAUNCH, WITHOUT_BF16
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load_any

GB, MICROSECOND = 1e9, 1e-6


def print_plan(arguments: argparse.Namespace) -> None:
    """Print the plan that the arguments of `trainer.plan` ask for; write its JSON and draw its chart, if named."""
    if arguments.chart:
        require("evaluate", "matplotlib", feature="--chart")
    for path in filter(None, (arguments.json, arguments.chart)):
        refuse_folder(path)
        in_a_folder(path)
    recipe = load_any(arguments.recipe, arguments.overrides)
    if not isinstance(recipe, PretrainRecipe):
        raise InputError(f"{arguments.recipe}: fine-tunes; a plan is for pre-training: name such a recipe")
    usual = (
        "cpu" if arguments.gpu == "cpu" else "zero1_fp16" if arguments.gpu.startswith(WITHOUT_BF16) else "zero1_bf16"
    )
    file, config = ds_config.load(usual if recipe.deepspeed == "auto" else recipe.deepspeed, for_here=False)
    if arguments.gpu != "cpu" and ds_config.precision(config) == torch.float32:
        raise InputError(
            f"deepspeed: {file.stem} computes in fp32, and of a GPU the speed in half precision is known: "
            f"plan with deepspeed={usual}"
        )
    work = count(recipe, vocabulary_of(recipe, arguments.vocabulary), ds_config.precision(config))
    machines, speed = _machines(arguments, recipe)
    assumptions = [
        f"{recipe.method.name}: {work.parameters:,} parameters, {work.flops / 1e9:,.4g} GFLOP an example, {file.stem}",
        *report.machine_lines(machines, speed),
    ]
    rows = [plan(recipe, work, config, machines, hosts) for hosts in arguments.hosts]
    ends = limits(recipe, work, config, machines, max(arguments.hosts))
    print(report.training(rows, ends, assumptions))
    if arguments.json:
        results = {"assumptions": assumptions, "rows": list(map(asdict, rows)), "pays": list(map(asdict, ends))}
        with whole_file(arguments.json) as out:
            out.write(json.dumps(results, indent=1).encode() + b"\n")
    if arguments.chart:
        print(report.draw(rows, arguments.chart))


def _machines(arguments: argparse.Namespace, recipe: PretrainRecipe) -> tuple[Machines, str]:
    """Return the machines that the options describe, and where their speed is from."""
    device, cpu = DEVICES[arguments.gpu], arguments.gpu == "cpu"
    latencies = {"between": 100.0, "within": 30.0} if cpu else {"between": 10.0, "within": 3.0}
    links = {
        name: Link(
            bandwidth * GB if bandwidth else arguments.link_share * line,
            MICROSECOND * (latencies[name] if latency is None else latency),
        )
        for name, bandwidth, latency, line in (
            ("between", arguments.network, arguments.latency, device.network),
            ("within", arguments.within, arguments.within_latency, device.within),
        )
    }
    speed: Roofline | MeasuredSpeed
    if arguments.measured:
        speed = measured_speed(_json(arguments.measured), recipe, arguments.case, str(arguments.measured))
        source = f"{speed.flops / 1e12:.4g} TFLOP/s a rank, measured: {arguments.measured}"
    else:
        speed = Roofline(
            device, arguments.efficiency, start=arguments.operation * MICROSECOND, launch=LAUNCH * (not cpu)
        )
        source = f"{arguments.gpu}, assumed: {speed.assumptions()}"
    machines = Machines(
        gpus=arguments.gpus,
        device=device,
        speed=speed,
        between=links["between"],
        within=links["within"],
        backend="gloo" if cpu else "nccl",
        overlap=arguments.overlap,
        disk=arguments.disk * GB,
    )
    return machines, source


def _json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
