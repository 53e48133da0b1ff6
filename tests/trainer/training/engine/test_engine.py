"""The engine and DeepSpeed: files on a full disk, precisions, no compiler, a clock; what DeepSpeed's files may set."""

import errno
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from deepspeed.runtime.config import DeepSpeedConfig

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.trainer.training.engine import ds_config, hashed_file
from deepsiam.trainer.training.engine.clock import DeviceClock
from deepsiam.trainer.training.engine.compiler import SWITCH, without_compiler
from deepsiam.trainer.training.engine.device import accelerator
from deepsiam.trainer.training.engine.engine import CheckpointFiles
from tests import toy
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


@pytest.mark.slow
def test_precisions_the_compiler_and_the_norm_of_the_gradient_without_zero(tmp_path: Path) -> None:
    (tmp_path / "zero0.json").write_text("{}")
    done = toy.launch(1, "tests.trainer.training.engine.opens_engines", tmp_path / "zero0.json")
    assert done.returncode == 0, done.stderr
    rotary, weights, has_compiler, with_zero, without = json.loads(done.stdout.splitlines()[-1])
    # an exported encoder computes its frequencies anew: if training rounded them to bf16, it would rotate otherwise
    assert (rotary, weights) == (["torch.float32"], ["torch.bfloat16"])
    assert not has_compiler  # it is imported for nothing that a run calls
    assert without[:2] == pytest.approx(with_zero[:2], rel=1e-5)
    assert without[0] > 0
    assert not math.isfinite(without[2]) or not math.isfinite(with_zero[2])


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


@pytest.fixture(autouse=True)
def _fp16_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator(), "is_fp16_supported", lambda: True)


ROWS = [  # a configuration, as YAML, and what is said
    ("fp16: {enabled: true}", "fp16 with ZeRO stage 0"),
    ("{fp16: {enabled: true}, zero_optimization: {stage: 0}}", "fp16 with ZeRO stage 0"),
    ("{fp16: {enabled: auto}, zero_optimization: {stage: 1}}", 'fp16.enabled: "auto"'),
    ("zero_optimizations: {stage: 1}", "did you mean zero_optimization?"),
    ("qwxyz: 1", "unknown key"),
    ("compile: {deepcompile: true}", "compile: would do nothing: DeepSpeed compiles only where a program"),
    ("torch_autocast: {enabled: true}", "torch_autocast: the trainer computes in the precision of bf16 or"),
    ("tensor_parallel: {autotp_size: 2}", "tensor_parallel: the ranks here divide the data"),
    ("sparse_gradients: true", "sparse_gradients: DeepSpeed no longer has it; remove it"),
    ("activation_checkpointing: {profile: true}", "activation_checkpointing: would do nothing: DeepSpeed re"),
    ("zero_optimization: {compute_grad_norm: false}", "compute_grad_norm: false: without the norm a bad step"),
    ("zero_optimization: {stage: 3, offload_optimizer: {device: nvme}}", "the device nvme needs nvme_path, a folder"),
    ("train_batch_size: 8", "the recipe sets this (batch.size)"),
    ("optimizer: {type: Adam}", "the recipe sets this (optimizer)"),
    ("gradient_clipping: 1.0", "optimizer.clip"),
    ("[1]", "must be a JSON object"),
    ("fp16: true", 'fp16: must be an object such as {"enabled": true}, not true'),
    ("data_types: fp32", 'data_types: must be an object such as {"grad_accum_dtype": "fp32"}, not "fp32"'),
    ("{bf16: {enabled: true}, data_types: {grad_accum_dtype: fp32}}", "grad_accum_dtype: DeepSpeed sums in fp32 only"),
    ("data_types: {grad_acum_dtype: fp32}", "did you mean data_types.grad_accum_dtype?"),
    ("bf16: [1]", 'bf16: must be an object such as {"enabled": true}, not [1]'),
    ("zero_optimization: 3", 'zero_optimization: must be an object such as {"stage": 1}, not 3'),
    ("zero_optimization: {stage: 9}", "zero_optimization.stage: must be 0, 1, 2 or 3, not 9"),
    ("zero_optimization: {stagee: 1}", "zero_optimization.stagee: DeepSpeed refuses it: unknown key"),
    ("zero_optimization: {stage: 1, offload_optimizer: {device: tape}}", "device: DeepSpeed refuses it: Input should "),
    ("zero_optimization: {stage: '1'}", 'zero_optimization.stage: must be 0, 1, 2 or 3, not "1"'),
    ("zero_optimization: {reduce_bucket_size: x}", "zero_optimization.reduce_bucket_size: must be a number"),
    ("zero_optimization: {reduce_bucket_size: -1}", "reduce_bucket_size: DeepSpeed refuses it: Input should"),
    ("{steps_per_print: 5, timers: 3}", "timers: DeepSpeed refuses it: argument of type 'int'"),
    ("communication_data_type: int8", 'communication_data_type: must be one of fp32, fp16 and bf16, not "int'),
    ("communication_data_type: half", "communication_data_type: DeepSpeed refuses it: Invalid"),
    ("{bf16: {enabled: true}, fp16: {enabled: true}, zero_optimization: {stage: 1}}", "bfloat16 and fp16 modes cannot"),
    ("data_types: {grad_accum_dtype: int8}", "data_types.grad_accum_dtype: must be one of fp32, fp16 and"),
    ("data_types: {param_dtype: [1]}", "data_types.param_dtype: must be one of fp32, fp16 and bf16, not [1]"),
    ("data_types: {param_dtype: bf16}", "data_types.param_dtype: bf16 contradicts the precision"),
    ("data_types: {grad_accum_dtype: half}", "data_types.grad_accum_dtype: DeepSpeed sums in half only"),
]


@pytest.mark.parametrize(("config", "words"), ROWS)
def test_what_deepspeed_gets_wrong_or_refuses_is_refused_with_the_reason(
    tmp_path: Path, config: str, words: str
) -> None:
    (tmp_path / "c.json").write_text(json.dumps(yaml.safe_load(config)))
    with pytest.raises(InputError, match=re.escape(words)):
        ds_config.load(str(tmp_path / "c.json"))


class Recorded(dict[str, Any]):
    """A configuration that remembers which keys it was asked for."""

    def __contains__(self, key: object) -> bool:
        asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        asked.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        return self


asked: set[str] = set()


def test_no_key_that_deepspeed_reads_is_called_unknown() -> None:
    asked.clear()
    DeepSpeedConfig(Recorded(train_micro_batch_size_per_gpu=1))
    assert len(asked) > 50
    assert asked <= ds_config.KNOWN_KEYS | ds_config.RECIPE_OWNS.keys() | ds_config.REASONS.keys()


def test_a_missing_or_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="name one of cpu, zero1_bf16"):
        ds_config.load("zero9")
    for content, words in {
        b"{": "not JSON",
        b'{"fp16": "\xff"}': "not JSON",
        b'{"aio": ' + b"[" * 100_000: "nested too deeply",
    }.items():
        (tmp_path / "c.json").write_bytes(content)
        with pytest.raises(InputError, match=words):
            ds_config.load(str(tmp_path / "c.json"))
    with pytest.raises(InputError, match="cannot read: File name too long"):
        ds_config.load("z" * 300)
    monkeypatch.setattr("builtins.open", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(InputError, match=r"c.json: cannot read: Permission denied"):
        ds_config.load(str(tmp_path / "c.json"))


@pytest.mark.parametrize("path", sorted(ds_config.FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_the_projects_own_files_match_their_names(path: Path) -> None:
    _, config = ds_config.load(path.stem)
    stage, dtype = config["zero_optimization"]["stage"], ds_config.precision(config)
    expected = {"cpu": (1, torch.float32)} | {
        f"zero{s}_{name}": (s, d) for s in (1, 2, 3) for name, d in (("fp16", torch.float16), ("bf16", torch.bfloat16))
    }
    assert (stage, dtype) == expected[path.stem]


@pytest.mark.parametrize(("precision", "sums"), [("bf16", True), ("fp16", False)])
def test_sums_in_fp32_are_those_of_bf16(precision: str, sums: bool) -> None:
    config = {precision: {"enabled": True}, "zero_optimization": {"stage": 1}}
    assert not ds_config.sums_in_fp32(config)
    assert ds_config.sums_in_fp32({**config, "data_types": {"grad_accum_dtype": "fp32"}}) is sums


def test_fp16_without_a_processor_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator(), "is_fp16_supported", lambda: False)
    with pytest.raises(InputError, match="asks for fp16, which this cpu device does not support: use bf16 or cpu"):
        ds_config.load("zero2_fp16")
    assert ds_config.load("zero2_fp16", for_here=False)
