"""Measured communication compared with its model, and the measurement itself on two hosts."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import communication
from benchmarks.scaling.communication import ACCUMULATION, PAYLOAD, ZERO, compare, line_of, spread_of
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.planning.communication import Zero, collectives

SIZES = [1_000_000, 500_000]
BYTES = 4 * sum(SIZES)


def measured(stage: int, ranks: int, bits: float, delay: float) -> dict[str, Any]:
    """What ranks measure if they behave exactly as the model says and compute for a quarter of a second."""
    # each byte goes around the ring twice for an all-reduce and once for an all-gather
    passes = {1: 2 + 1, 2: 2 * ACCUMULATION + 1, 3: ACCUMULATION * (1 + 2)}[stage]
    size = passes * (ranks - 1) / ranks * BYTES
    step = collectives(SIZES, Zero.from_config({"zero_optimization": ZERO[stage]}), ACCUMULATION, "gloo")
    links = sum(one.rounds * one.calls * (2 if one.kind == "all_reduce" else 1) for one in step) * (ranks - 1)
    seconds = 0.25 + size / (bits / 8 * PAYLOAD) + links * delay
    networks = [
        {"bits": bits, "delay": delay, "seconds": [seconds] * 3, "bytes": [size] * ranks, "sum_of_one_number": 0.0},
    ]
    return {"sizes": SIZES, "networks": networks, "without_exchange": [0.25]}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_behave_as_the_model_have_the_ratio_one(stage: int, ranks: int) -> None:
    (row,) = compare(measured(stage, ranks, 50e6, 0.005), ranks, stage)
    assert row["bytes"]["ratio"] == pytest.approx(1)
    assert row["seconds"]["ratio"] == pytest.approx(1)
    assert row["without_exchange"] == 0.25
    assert f"{ranks} hosts  ZeRO-{stage}    50 Mbit/s  5 ms" in line_of(row)


def test_what_differs_from_the_model_shows_in_the_ratios() -> None:
    found = measured(1, 2, 50e6, 0.0)
    found["networks"][0]["seconds"] = [100.0]
    found["networks"][0]["bytes"] = [BYTES, 3 * BYTES]
    (row,) = compare(found, 2, 1)
    assert row["bytes"]["ratio"] == pytest.approx(2)  # 3 x BYTES from the host that sent more; the model says 1.5
    assert row["seconds"]["measured"] == 99.75
    rows = [row, *compare(measured(1, 2, 50e6, 0.0), 2, 1)]
    assert spread_of(rows, "bytes") == pytest.approx({"min": 1.0, "median": 1.5, "max": 2.0})


@pytest.mark.slow
def test_two_hosts_send_as_much_as_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "BITS", (400e6,))
    monkeypatch.setattr(communication, "DELAYS", (0.02,))
    out = tmp_path / "out.json"
    arguments = ["communication", "--hosts", "2", "--stages", "1", "--steps", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    (tmp_path / "hosts").mkdir()
    try:
        with communication.cluster(tmp_path / "hosts", 2):
            pass
    except InputError as error:
        pytest.skip(f"this machine has no network namespaces or no TAP devices: {error}")
    communication.main()
    (row,) = json.loads(out.read_text())["rows"]
    assert row["bytes"]["ratio"] == pytest.approx(1, abs=0.1)
    assert row["sum_of_one_number"] > 2 * 0.02  # the delay, there and back
