"""The turns of a command beside a busy process are compared with its turn alone, round by round."""

from pathlib import Path

import pytest

from benchmarks.demo import shared_machine
from benchmarks.demo.shared_machine import ALONE, BESIDE, SPINNING, busy, commands, seconds, summary
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.expression import read_systems


def test_ratios_are_of_each_round_and_of_all_commands_together() -> None:
    one = {ALONE: [1.0, 2.0], BESIDE: [2.0, 3.0], SPINNING: [4.0, 2.0]}
    other = {ALONE: [3.0, 2.0], BESIDE: [4.0, 3.0], SPINNING: [4.0, 6.0]}
    results = summary({"one": one, "other": other})
    assert results["one"][BESIDE] == {"min": 1.5, "median": 1.75, "max": 2.0}
    assert results["together"]["seconds"][SPINNING] == [8.0, 8.0]
    assert results["together"][BESIDE] == {"min": 1.5, "median": 1.5, "max": 1.5}


def test_a_command_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = ["false", "--out", "x"]
    monkeypatch.setattr(shared_machine, "commands", lambda folder: {"evaluate": failing})
    with pytest.raises(InputError, match="false --out x ended with code 1"):
        seconds("evaluate", beside=True, variables={})


def test_the_busy_process_ends_with_its_turn() -> None:
    with busy():
        pass  # leaving waits for the process


def test_the_systems_to_evaluate_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(shared_machine.ENCODER).mkdir(parents=True)
    command = commands(tmp_path)["evaluate"]
    systems = [command[i + 1] for i, word in enumerate(command) if word == "--system"]
    assert [system.name for system in read_systems(systems)] == ["bm25", "mine"]


def test_the_demo_must_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="data/demo/collection: does not exist here: run make demo first"):
        shared_machine.main([])
