"""`trainer.plan` end to end: its text, JSON and chart; no import of DeepSpeed."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

from deepsiam.trainer.plan import main
from tests import toy
from tests.test_imports import loaded

SMALL = ["recipes/seed_small.yaml", "trunk.vocab_size=4096"]


def planned(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def test_a_recipe_is_planned_without_its_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, chart = tmp_path / "plan.json", tmp_path / "plan.png"
    planned(*SMALL, "--hosts", "8,1,2,1", "--gpus", 4, "--gpu", "a100", "--json", results, "--chart", chart)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "Computed, not measured: a model of machines that were not there."
    assert "Compute: a100, assumed: 58% of 312 TFLOP/s in products, " in "\n".join(printed)
    plan: Any = json.loads(results.read_text())
    assert [row["ranks"] for row in plan["rows"]] == [4, 8, 32]
    assert printed[1 : 1 + len(plan["assumptions"])] == plan["assumptions"]
    for row in plan["rows"]:
        (line,) = (line for line in printed if line.split()[:2] == [f"{row['hosts']:,}", f"{row['ranks']:,}"])
        assert f"{row['tokens_per_second']:,.0f}" in line
        assert row["step_seconds"] == pytest.approx(row["step"]["compute"] + row["step"]["exposed"])
        changes = [line for line in printed if f"planned with {' '.join(row['changes'])}" in line]
        assert bool(row["changes"]) == bool(changes)
    assert {(one["batch"], one["stage"]) for one in plan["pays"]} >= {(32, 1), (32, 2), (32, 3)}
    assert matplotlib.image.imread(chart).std() > 0.05  # something is drawn


def test_options_are_what_is_planned_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = "benchmarks/results/pretrain_step_cpu.json"
    options = ["--network", "0.1", "--latency", 200, "--disk", 3]
    planned(*SMALL, "--hosts", 2, "--gpus", 1, "--gpu", "cpu", "--measured", measured, "--case", "seed-demo", *options)
    printed = capsys.readouterr().out
    for part in (
        "cpu\n",
        f"TFLOP/s a rank, measured: {measured}",
        "Links, gloo: a host 0.1 GB/s, 200 us a message",
        "a host reads 3 GB/s\n",
    ):
        assert part in printed


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (["--gpu", "v100"], "zero1_fp16"),  # it has no bf16
        (["--gpu", "h100"], "zero1_bf16"),
        (["deepspeed=zero2_fp16"], "zero2_fp16"),  # on a machine that may have no fp16
    ],
)
def test_a_gpu_is_planned_in_half_precision(
    options: list[str], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(*SMALL, *options)
    assert f", {config}\n" in capsys.readouterr().out


PAGE = (toy.ROOT / "docs" / "scaling.md").read_text()
PRINTED = re.findall(
    r"^    python -m trainer\.plan (?!RECIPE)((?:.*\\\n)*.*)\n\n((?:    .*\n|\n(?=    (?!python)))+)", PAGE, re.M
)


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(PRINTED) == 4
    for command, printed in PRINTED:
        planned(*command.replace("\\\n", " ").split())
        lines = capsys.readouterr().out.splitlines()
        assert len(printed.splitlines()) > 2
        for line in printed.splitlines():
            assert line.removeprefix("    ") in lines


def test_a_chart_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("deepsiam.data_prep.common.extras.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        main([*SMALL, "--chart", "x.png"])
    assert "deepsiam[evaluate]" in capsys.readouterr().err


def test_nothing_of_deepspeed_is_imported() -> None:
    """Neither by the planning room nor by any of our files that it imports, directly or indirectly."""
    names = loaded("trainer.cluster.planning.plan")
    assert "trainer.cluster.planning.communication" in names
    assert not {name for name in names if name.split(".")[0] == "deepspeed"}
