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


OPENED = """
import json, os
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.models.build_trunk import build_trunk
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.engine.world import World, join
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
values = {"run": "none", "steps": 1, "data": {"shards": "none"}, "trunk": {}}
values |= {"batch": {"size": 4, "micro": 2}, "method": {"name": "mlm", "max_tokens": 32}, "optimizer": {"lr": 1e-3}}
shape = {"vocab_size": 40, "pad_token_id": 0, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
trunk = {"model_type": "modernbert", **shape, "intermediate_size": 48}

def opened(deepspeed):
    model = Mlm(build_trunk(trunk))
    recipe = build(PretrainRecipe, {**values, "deepspeed": deepspeed}, "test")
    return Engine(model, recipe, World.from_environment()), recipe

join(World.from_environment())
"""


def printed(lines: str) -> str:
    """Return the last line that Python prints, with an engine to open."""
    environment = {**toy.environment(), "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-c", OPENED + lines]
    done = subprocess.run(command, cwd=toy.ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_rotary_frequencies_stay_in_fp32_and_the_compiler_out() -> None:
    # an exported encoder recomputes them: had training rounded them to bf16, the export would rotate differently
    lines = """
import sys
model = opened("zero1_bf16")[0].model
frequencies = {buffer.dtype for name, buffer in model.named_buffers() if name.endswith("inv_freq")}
compiler = "torch._inductor.compile_fx" in sys.modules
print(frequencies, {parameter.dtype for parameter in model.parameters()}, compiler, flush=True)
os._exit(0)
"""
    assert printed(lines) == "{torch.float32} {torch.bfloat16} False"


@pytest.mark.slow
def test_the_norm_of_the_gradient_is_known_without_zero(tmp_path: Path) -> None:
    (tmp_path / "zero0.json").write_text("{}")
    lines = f"""
import torch
from deepsiam.models.interface import MicroBatch
from deepsiam.trainer.training.recipe.objective import objectives
from deepsiam.trainer.cluster.planning.compute import SPECIAL, made_up_batch
from tests.models.tiny import Spelled
norms = []
for deepspeed in ("cpu", {str(tmp_path / "zero0.json")!r}):
    torch.manual_seed(1)
    engine, recipe = opened(deepspeed)
    batches = [made_up_batch(recipe.method, Spelled(40, **SPECIAL), 2)[0]] * 2
    own = objectives([recipe.method], 0, [2], [{{"mlm": 2 * batches[0].counts["mlm"]}}]) * 2
    take = lambda: engine.step(batches, own, [1, 2], 1e-3).grad_norm.item()
    norms += [take(), take()]
    with torch.no_grad():
        next(engine.model.parameters()).fill_(float("nan"))
    norms.append(take())
print(json.dumps(norms), flush=True)
os._exit(0)
"""
    *with_zero, nan_with, first, second, nan_without = json.loads(printed(lines))
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
