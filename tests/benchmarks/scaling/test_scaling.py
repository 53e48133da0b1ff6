"""The arithmetic of the scaling benchmark, what its runs print, and two real ranks of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scaling import __main__ as scaling
from benchmarks.scaling import hosts
from benchmarks.scaling.hosts import Lines
from benchmarks.scaling.ranks import APART, ONE, TWO, RankSettings, run
from benchmarks.scaling.ranks import scaling as ratios_of


def test_efficiencies_are_those_within_a_round() -> None:
    # a micro-batch takes 1 s, the exchange between two ranks 1 s more; all times are doubled in the second round
    sizes = (1, 2, 4)
    seconds = {
        ONE: {size: [float(size), 2.0 * size] for size in sizes},
        TWO: {size: [size + 1.0, 2.0 * size + 2.0] for size in sizes},
        APART: {size: [float(size), 2.0 * size] for size in sizes},
    }
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

    class Cables:
        addresses, hostfile = ("a", "b"), tmp_path / "hostfile"
        cut, mend = cuts.append, cuts.append

    class Made:
        def __enter__(self) -> tuple[Any, Path]:
            return Cables, tmp_path / "run.yaml"

        def __exit__(self, *_: object) -> None: ...

    def watched(_: object, command: Sequence[str], at: dict[str, Any]) -> Lines:
        assert command[1:4] == ["-m", "trainer.supervise", "--"]
        at["step 8/"]()
        return lines

    monkeypatch.setattr(hosts, "made", lambda number: Made())
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


@pytest.mark.slow
def test_two_ranks_take_steps_on_their_own_cores() -> None:
    tiny = (
        "deepspeed=cpu",
        "trunk.vocab_size=300",
        "trunk.hidden_size=32",
        "trunk.num_hidden_layers=1",
        "trunk.num_attention_heads=2",
        "trunk.intermediate_size=64",
    )
    found = run(RankSettings(micro=2, accumulations=(1, 2), steps=1, changes=tiny), ranks=2, runs=1)
    assert found.keys() == {1, 2}
    assert min(found.values()) > 0
