"""Compile a model's layers; keep torch's compiler out of a process that compiles nothing.

Used once, when the model is compiled and the engine is made.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from deepsiam.data_prep.common.environment import variable
from deepsiam.data_prep.common.errors import InputError, as_input_error
from deepsiam.models.layer_modes import compile_layers
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.engine.device import this_device

SWITCH = "TORCHDYNAMO_DISABLE"  # torch reads this variable at every use of torch.compile


@contextmanager
def without_compiler() -> Iterator[None]:
    """Make torch.compile return functions unchanged.

    To check an optimizer of any kind, DeepSpeed imports its own Muon. Muon decorates functions with torch.compile,
    which would import the whole compiler: two seconds of CPU time on every rank, for functions that no run calls.
    """
    with variable(SWITCH, "1"):
        yield


def compile_model(model: TrunkModel) -> None:
    """Have the layers of a model's encoders compiled; raise InputError where that is impossible."""
    if reason := missing_tools(this_device()):
        raise InputError(f"compile: {reason}, or leave this out")
    with as_input_error("compile"):
        compile_layers(model)


def missing_tools(device: torch.device) -> str | None:
    """Return what torch.compile lacks on a device, and the remedy; None if it lacks nothing."""
    if device.type == "cpu":
        has_compiler = shutil.which("g++") or shutil.which("clang++")
        return None if has_compiler else "torch.compile needs a C++ compiler on a CPU: install g++"
    if find_spec("triton") and (shutil.which("gcc") or shutil.which("clang")):
        return None
    return "torch.compile needs triton and a C compiler on a GPU: pip install triton, and install gcc"
