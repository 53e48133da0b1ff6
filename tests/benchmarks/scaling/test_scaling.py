"""What ranks and hosts cost: ratios within a round, the parts of a start and a death, communication and its model."""

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling import communication, hosts, saving
from benchmarks.scaling.communication import ACCUMULATION, PAYLOAD, ZERO, compare, line_of, spread_of
from benchmarks.scaling.delayed_switch import POLL_SECONDS, Switch
from benchmarks.scaling.hosts import Lines
from benchmarks.scaling.ranks import APART, ONE, TWO, RankSettings, run
from benchmarks.scaling.ranks import scaling as ratios_of
from benchmarks.scaling.start_up import HERE, PARTS, THERE, cpu, rest, summary
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.planning.communication import Zero, collectives
from tests import toy

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
A, B, C, ALL = b"aaaaaa", b"bbbbbb", b"cccccc", b"\xff" * 6  # a frame begins with its destination, then its source
SIZES = [1_000_000, 500_000]
BYTES = 4 * sum(SIZES)


def test_efficiencies_are_those_within_a_round() -> None:
    # a micro-batch takes 1 s, the exchange between two ranks 1 s more; all times are doubled in the second round
    sizes = (1, 2, 4)
    alone = {size: [float(size), 2.0 * size] for size in sizes}
    seconds = {ONE: alone, TWO: {size: [size + 1.0, 2.0 * size + 2.0] for size in sizes}, APART: alone}
    found = ratios_of(seconds, sizes)
    assert {size: one["median"] for size, one in found["weak"].items()} == pytest.approx({1: 1 / 2, 2: 2 / 3, 4: 4 / 5})
    assert {size: one["median"] for size, one in found["strong"].items()} == pytest.approx({2: 1.0, 4: 4 / 3})
    assert found["break_even"] == 4
    assert all(one == {"min": 1.0, "median": 1.0, "max": 1.0} for one in found["possible"].values())
    assert ratios_of({**seconds, TWO: {size: [9.0, 9.0] for size in sizes}}, sizes)["break_even"] is None


def test_the_parts_of_a_death_are_found_in_the_lines_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: Lines = [
        (0.0, ""),
        (1.0, "supervise: step 0 of 40: starting deepspeed --include a@b"),
        (5.0, "step 8/40  mlm 5.0  1.0k tokens/s"),
        (16.0, "supervise: step 5 of 40: ended with code 76"),
        (30.0, "supervise: step 5 of 40: starting deepspeed --include a:0 --resume"),
        (41.0, "step 6/40  mlm 5.0  1.0k tokens/s"),
    ]
    cuts: list[int] = []
    cables = SimpleNamespace(addresses=("a", "b"), hostfile=tmp_path, cut=cuts.append, mend=cuts.append)

    def watched(_: object, command: Sequence[str], at: dict[str, Any]) -> Lines:
        assert command[1:4] == ["-m", "trainer.supervise", "--"]
        at["step 8/"]()
        return lines

    monkeypatch.setattr(hosts, "made", lambda number: nullcontext((cables, tmp_path / "run.yaml")))
    monkeypatch.setattr(hosts, "watch", watched)
    found = hosts.death(hosts.DeathSizes(hosts=2, at=8, hang_seconds=10), 0.5)
    medians = {name: one["median"] for name, one in found["spread"].items()}
    assert medians == {"from death to the next step": 36, "noticed": 11, "started again": 14, "next step": 11}
    assert cuts[:2] == [1, 1]  # disconnected, then reconnected


def test_checkpoints_grow_and_are_compared_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(_: Path, sizes: list[str]) -> dict[str, Any]:
        layers = int(sizes[-1])
        return {"bytes": layers * 10**6, "save": {"seconds": {"deepsiam": [3.0 * layers], "torch": [2.0 * layers]}}}

    monkeypatch.setattr(scaling, "measure_code", measured)
    found = scaling.checkpoints(scaling.CheckpointSizes(hidden=8, layers=(1, 4), rounds=2), 60)
    assert found["seconds"] == {
        10**6: {"deepsiam": [3.0, 3.0], "torch": [2.0, 2.0]},
        4 * 10**6: {"deepsiam": [12.0, 12.0], "torch": [8.0, 8.0]},
    }
    assert found["ratios"]["4 MB"]["median"] == 1.5
    assert any("4 MB, to torch.save" in line for line in scaling.lines_of("checkpoints", found))


def test_saving_by_two_codes_is_compared_within_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports of the two checkouts are made up: the second round takes twice as long."""
    asked = []

    def report(code: Path, sizes: list[str]) -> dict[str, Any]:
        asked.append(code.name)
        seconds = 1.0 if len(asked) <= 2 else 2.0
        own = {"seconds": {"deepsiam": [seconds * (2 if code.name == "here" else 8)], "torch": [seconds]}}
        return {"bytes": 10, "save": own, "load": own}

    monkeypatch.setattr(saving, "measure_code", report)
    results = saving.measure_codes(Path("here"), Path("there"), 2, [])
    assert asked == ["here", "there"] * 2
    for what in ("save", "load"):
        assert results[what]["seconds"][HERE] == [2.0, 4.0]
        compared = (f"{HERE} / torch beside {HERE}", f"{THERE} / torch beside {THERE}", f"{HERE} / {THERE}")
        assert [results[what][name]["median"] for name in compared] == [2.0, 8.0, 0.25]


def test_starts_of_two_codes_are_compared_within_each_round() -> None:
    assert rest({"whole": 20.0, "launcher": 4.0, "imports": 6.0}) == 4.0  # without every rank's imports
    here, there = {part: [1.0, 2.0] for part in PARTS}, {part: [4.0, 4.0] for part in PARTS}
    assert f"{HERE} / {THERE}" not in summary({HERE: here})
    results = summary({HERE: here, THERE: there})
    assert results[f"{HERE} / {THERE}"]["whole"] == {"min": 0.25, "median": 0.375, "max": 0.5}
    assert results[HERE]["wall"]["median"] == 1.5


def test_the_time_of_a_command_is_that_of_its_children_before_and_after_the_first_step() -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}], check=True)"
    after = "print('step 1/1  mlm 9.4', flush=True); import time; time.sleep(0.2)"
    seconds, before, end = cpu(Path.cwd(), [sys.executable, "-c", f"{child}; {after}"])
    assert seconds > 0.3
    assert before > 0.25
    assert end >= 0.2


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


def test_what_differs_from_the_model_shows_in_the_ratios() -> None:
    found = measured(1, 2, 50e6, 0.0)
    found["networks"][0] |= {"seconds": [100.0], "bytes": [BYTES, 3 * BYTES]}
    (row,) = compare(found, 2, 1)
    assert row["bytes"]["ratio"] == pytest.approx(2)  # 3 x BYTES from the host that sent more; the model says 1.5
    assert row["seconds"]["measured"] == 99.75
    rows = [row, *compare(measured(1, 2, 50e6, 0.0), 2, 1)]
    assert spread_of(rows, "bytes") == pytest.approx({"min": 1.0, "median": 1.5, "max": 2.0})


def test_a_frame_goes_to_the_port_of_its_destination_or_to_all_others() -> None:
    switch = Switch(3)
    sent = [(0, ALL + A, [1, 2]), (1, A + B, [0]), (2, B + C, [1]), (0, A + A, [])]
    for port, frame, ports in sent:
        switch.receive(port, frame, 0.0)
        assert switch.due(0.0) == [(out, frame) for out in ports]


def test_frames_are_kept_until_they_are_due_and_leave_in_order() -> None:
    switch = Switch(2)
    switch.delay = 0.5
    for number in range(3):
        switch.receive(0, B + A + bytes([number]), 10.0)
    assert switch.due(10.4) == []
    assert switch.wait(10.49) == pytest.approx(0.01)
    switch.delay = 0.0
    switch.receive(1, A + B, 10.4)
    assert switch.due(10.4) == [(0, A + B)]
    assert switch.due(10.6) == [(1, B + A + bytes([number])) for number in range(3)]
    assert switch.wait(10.6) == POLL_SECONDS


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
