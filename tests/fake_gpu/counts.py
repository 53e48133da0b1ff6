"""Run cases on the fake GPU in a process of its own, and hold what was counted against the budgets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.fake_gpu.device import OLDEST
from tests.toy import ROOT

BUDGETS = Path(__file__).with_name("budgets.json")
VERSIONS = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
Counts = dict[str, dict[str, Any]]

needs_fake_gpu = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST, reason="torch < 2.13 has no device written in Python"
)


def counted(kind: str) -> Counts:
    """Return what all cases of one kind counted, by case."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake_gpu", kind], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


def budgets(kind: str) -> Counts:
    """Return what each case of one kind may count."""
    cases: Counts = json.loads(BUDGETS.read_text())[kind]
    return cases


def check(case: str, counts: Counts, kind: str) -> None:
    """Compare a case's counts with its budget: neither may be larger, so that a budget falls and never rises.

    Kernels depend on the versions of torch and transformers; they are compared for those of the budgets only.
    """
    assert case in counts, f"{case}: no longer there; {REWRITE}"
    found, budget = counts[case], budgets(kind)[case]
    assert "error" not in found, found["error"]
    assert found.get("refuses") == budget.get("refuses")
    same = json.loads(BUDGETS.read_text())["versions"] == VERSIONS
    for what in budget.keys() - ({"refuses"} if same else {"refuses", "kernels"}):
        number = sum(found[what].values()) if what == "waits" else found[what]
        assert number <= budget[what], f"{case}: {number} {what}, at most {budget[what]} allowed: {found['waits']}"
        assert number == budget[what], f"{case}: only {number} {what} are left of {budget[what]}; {REWRITE}"


REWRITE = "write the budgets anew: python -m tests.fake_gpu.counts"


def _rewrite() -> None:
    lines = [f'"versions": {json.dumps(VERSIONS)}']
    for kind in ("passes", "steps"):
        found = {case: _budget(one) for case, one in counted(kind).items() if not case.startswith("fault/")}
        cases = ",\n".join(f"  {json.dumps(case)}: {json.dumps(budget)}" for case, budget in found.items())
        lines.append(f'"{kind}": {{\n{cases}\n }}')
    BUDGETS.write_text("{\n " + ",\n ".join(lines) + "\n}\n")


def _budget(found: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in found, f"{found['case']}: {found['error']}"
    budget = {what: number for what, number in found.items() if what != "case"}
    return {**budget, "waits": sum(found["waits"].values())} if "waits" in found else budget


if __name__ == "__main__":
    _rewrite()
