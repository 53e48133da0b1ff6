"""The engine and DeepSpeed: precision of buffers, checkpoint files on a full disk, no compiler, a clock."""

import errno
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from deepsiam.data_prep.common.files import sha256_of
from deepsiam.trainer.training.engine import hashed_file
from deepsiam.trainer.training.engine.clock import DeviceClock
from deepsiam.trainer.training.engine.compiler import SWITCH, without_compiler
from deepsiam.trainer.training.engine.engine import CheckpointFiles
from tests import toy
from tests.ports import free_port
from tests.trainer.training.engine.full_disk import files_of_at_most

STATE = {"moments": torch.zeros(300), "step": 7}


@pytest.mark.parametrize("piece", [64, hashed_file.PIECE])  # the disk fails during torch's writes, or at the end
def test_a_disk_that_is_full_at_any_byte_gives_the_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(hashed_file, "PIECE", piece)
    whole = tmp_path / "whole.pt"
    torch.save(STATE, whole)
    for size in range(0, whole.stat().st_size, 23):
        files = CheckpointFiles()
        with files_of_at_most(size):
            files.save(STATE, str(tmp_path / "cut.pt"))
        assert isinstance(files.error, OSError), f"at byte {size}"
        assert files.error.errno == errno.EFBIG
        assert files.error.filename == str(tmp_path / "cut.pt")
        assert files.written == {}


def test_files_are_written_until_the_first_error(tmp_path: Path) -> None:
    files = CheckpointFiles()
    files.save(STATE, str(tmp_path / "file.pt"))
    assert files.error is None
    path = tmp_path / "file.pt"
    assert files.written == {path: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}}
    with pytest.raises(TypeError):  # a bug, not a disk error
        files.save({"step": (i for i in range(3))}, str(tmp_path / "generator.pt"))
    assert torch.load(tmp_path / "file.pt", weights_only=True)["step"] == 7
    files.save(STATE, str(tmp_path / "none" / "first.pt"))
    assert isinstance(files.error, FileNotFoundError)
    files.save(STATE, str(tmp_path / "second.pt"))
    assert not (tmp_path / "second.pt").exists()


OPENS_ENGINES = """
import json, os, sys, torch
from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.trainer.cluster.planning.compute import SPECIAL, made_up_batch
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.objective import objectives
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests.models.tiny import Spelled
values = {"run": "none", "steps": 1, "data": {"shards": "none"}, "trunk": {}}
values |= {"batch": {"size": 4, "micro": 2}, "method": {"name": "mlm", "max_tokens": 32}, "optimizer": {"lr": 1e-3}}
shape = {"vocab_size": 40, "pad_token_id": 0, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
trunk = {"model_type": "modernbert", **shape, "intermediate_size": 48}

def opened(deepspeed):
    recipe = build(PretrainRecipe, {**values, "deepspeed": deepspeed}, "test")
    return Engine(Mlm(build_trunk(trunk)), recipe, World.from_environment()), recipe

join(World.from_environment())
in_bf16 = opened("zero1_bf16")[0].model
rotary = {str(buffer.dtype) for name, buffer in in_bf16.named_buffers() if name.endswith("inv_freq")}
weights = {str(parameter.dtype) for parameter in in_bf16.parameters()}
compiler, norms = "torch._inductor.compile_fx" in sys.modules, []
for deepspeed in ("cpu", sys.argv[1]):
    torch.manual_seed(1)
    engine, recipe = opened(deepspeed)
    batches = [made_up_batch(recipe.method, Spelled(40, **SPECIAL), 2)[0]] * 2
    both = objectives([recipe.method], 0, [2], [{"mlm": 2 * batches[0].counts["mlm"]}]) * 2
    take = lambda: engine.step(batches, both, [1, 2], 1e-3).grad_norm.item()
    norms += [take(), take()]
    with torch.no_grad():
        next(engine.model.parameters()).fill_(float("nan"))
    norms.append(take())
print(json.dumps([[*rotary], [*weights], compiler, norms]), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_precisions_the_compiler_and_the_norm_of_the_gradient_without_zero(tmp_path: Path) -> None:
    (tmp_path / "zero0.json").write_text("{}")
    environment = {**toy.environment(), "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-c", OPENS_ENGINES, str(tmp_path / "zero0.json")]
    done = subprocess.run(command, cwd=toy.ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout, done.stderr
    rotary, weights, has_compiler, norms = json.loads(done.stdout.splitlines()[-1])
    # an exported encoder computes its frequencies anew: if training rounded them to bf16, it would rotate otherwise
    assert (rotary, weights) == (["torch.float32"], ["torch.bfloat16"])
    assert not has_compiler  # it is imported for nothing that a run calls
    *with_zero, nan_with, first, second, nan_without = norms
    assert [first, second] == pytest.approx(with_zero, rel=1e-5)
    assert first > 0
    assert not math.isfinite(nan_without) or not math.isfinite(nan_with)


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


def test_the_clock_adds_up_what_is_counted_and_begins_anew_when_taken() -> None:
    clock = DeviceClock(torch.device("cpu"))
    began = time.perf_counter()
    for _ in range(2):
        with clock.counting():
            time.sleep(0.01)
    longest = time.perf_counter() - began
    time.sleep(0.01)
    assert 0.02 <= clock.take() <= longest
    assert clock.take() == 0.0
