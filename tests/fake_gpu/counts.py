"""Run cases on the fake GPU in a process of its own, and hold what was counted against the budgets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests import warm
from tests.fake_gpu.device import OLDEST

BUDGETS = Path(__file__).with_name("budgets.json")
VERSIONS = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
Counts = dict[str, dict[str, Any]]

needs_fake_gpu = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST, reason="torch < 2.13 has no device written in Python"
)


def counted() -> Counts:
    """Return what all cases counted."""
    done = warm.run("tests.fake_gpu", ranks=0, environment={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


def budgets() -> Counts:
    """Return what each case may count."""
    cases: Counts = json.loads(BUDGETS.read_text())["cases"]
    return cases


def check(case: str, counts: Counts) -> None:
    """Compare a case's counts with its budget: neither may be larger, so that a budget falls and never rises.

    Kernels depend on the versions of torch and transformers; they are compared for those of the budgets only.
    """
    assert case in counts, f"{case}: no longer there; {REWRITE}"
    found, budget = counts[case], budgets()[case]
    assert "error" not in found, found["error"]
    same = json.loads(BUDGETS.read_text())["versions"] == VERSIONS
    for what in budget.keys() - (set() if same else {"kernels"}):
        number = sum(found[what].values()) if what == "waits" else found[what]
        assert number <= budget[what], f"{case}: {number} {what}, at most {budget[what]} allowed: {found['waits']}"
        assert number == budget[what], f"{case}: only {number} {what} are left of {budget[what]}; {REWRITE}"


REWRITE = "write the budgets anew: python -m tests.fake_gpu.counts"


def _rewrite() -> None:
    found = {case: _budget(one) for case, one in counted().items() if not case.startswith("fault/")}
    cases = ",\n".join(f"  {json.dumps(case)}: {json.dumps(budget)}" for case, budget in found.items())
    BUDGETS.write_text(f'{{\n "versions": {json.dumps(VERSIONS)},\n "cases": {{\n{cases}\n }}\n}}\n')


def _budget(found: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in found, f"{found['case']}: {found['error']}"
    return {**{what: n for what, n in found.items() if what != "case"}, "waits": sum(found["waits"].values())}


if __name__ == "__main__":
    _rewrite()
