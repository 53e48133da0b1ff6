"""DeepSpeed's files: what is refused, and why."""

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from deepspeed.runtime.config import DeepSpeedConfig

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine import ds_config
from deepsiam.trainer.training.engine.device import accelerator


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
