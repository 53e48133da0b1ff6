"""What ranks and hosts cost: ratios within a round, the parts of a start and a death, communication and its model."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import communication
from benchmarks.scaling.communication import ACCUMULATION, PAYLOAD, ZERO, compare, line_of
from benchmarks.scaling.ranks import RankSettings, run
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.planning.communication import Zero, collectives
from tests import toy

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
        {"bits": bits, "delay": delay, "seconds": [seconds] * 3, "bytes": [size] * ranks, "sum_of_one_number": 0.0}
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


@pytest.mark.slow
def test_two_hosts_send_as_much_as_the_model_says(
    forked_python: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.slow
def test_two_ranks_take_steps_on_their_own_cores(forked_python: None) -> None:
    trunk = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    changes = ("deepspeed=cpu", *(f"trunk.{key}={value}" for key, value in trunk.items()))
    found = run(RankSettings(micro=2, accumulations=(1, 2), steps=1, changes=changes), ranks=2, runs=1)
    assert found.keys() == {1, 2}
    assert min(found.values()) > 0


@pytest.mark.slow
def test_the_seconds_and_ratios_of_saving_and_loading_are_written(tmp_path: Path) -> None:
    options = ["--hidden", "64", "--layers", "2", "--rounds", "2", "--out", str(tmp_path / "out.json")]
    done = toy.run("benchmarks.scaling.saving", *options, MASTER_PORT=str(toy.free_port()))
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out.json").read_text())
    for what in ("save", "load"):
        assert {name: len(values) for name, values in results[what]["seconds"].items()} == {"deepsiam": 2, "torch": 2}
        assert results[what]["deepsiam / torch"]["median"] > 0
