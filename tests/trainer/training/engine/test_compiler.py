"""Torch's compiler stays out of a run."""

import os
import subprocess
import sys

import pytest
import torch

from deepsiam.trainer.training.engine.compiler import SWITCH, without_compiler
from tests import toy
from tests.ports import free_port


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@pytest.mark.parametrize("before", [None, "0"])
def test_nothing_is_compiled_and_the_switch_is_restored(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if before:
        monkeypatch.setenv(SWITCH, before)
    with without_compiler():
        assert torch.compile(double) is double
    assert os.environ.get(SWITCH) == before


@pytest.mark.slow
def test_an_engine_does_not_import_the_compiler() -> None:
    makes_one = f"""
import os, sys
from torch import nn
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
join(World.from_environment())
recipe = build(PretrainRecipe, {toy.SEED_RECIPE | {"deepspeed": "cpu"}}, "test")
Engine(nn.Linear(4, 4), recipe, World.from_environment())
os._exit("torch._inductor.compile_fx" in sys.modules)
"""
    environment = {**toy.environment(), "MASTER_PORT": str(free_port())}
    assert subprocess.run([sys.executable, "-c", makes_one], cwd=toy.ROOT, env=environment).returncode == 0
