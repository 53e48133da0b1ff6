"""The error of gradients that are summed over micro-batches and ranks in bf16, and in fp32."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import toy

pytestmark = pytest.mark.slow  # real processes

STAGES = (1, 2, 3)


def variants(stage: int) -> list[dict[str, Any]]:
    """Return configurations of a stage: summed and sent in fp32, summed in fp32 and sent in bf16, both in bf16."""
    in_bf16 = json.loads((toy.ROOT / "ds_configs" / f"zero{stage}_bf16.json").read_text())
    summed = {**in_bf16, "data_types": {"grad_accum_dtype": "fp32"}}
    return [{**summed, "communication_data_type": "fp32"}, summed, in_bf16]


def test_sums_in_fp32_are_exact_where_bf16_loses_a_part_in_150(tmp_path: Path) -> None:
    files = []
    for number, config in enumerate(config for stage in STAGES for config in variants(stage)):
        files.append(str(tmp_path / f"{number}.json"))
        Path(files[-1]).write_text(json.dumps(config))
    done = toy.launch(2, "tests.trainer.training.engine.gradient_sums", *files)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert max(errors[::3]) < 1e-7
    assert errors[1::3] == pytest.approx([2.1e-3] * 3, rel=0.3)
    assert errors[2::3] == pytest.approx([7.1e-3] * 3, rel=0.1)
