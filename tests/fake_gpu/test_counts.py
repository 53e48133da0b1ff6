"""Methods and the engine, rank 0 of 8, on a fake GPU: no tensor on the wrong device, no wait and kernel over budget."""

import json
import os
from typing import Any

import pytest
import torch

from deepsiam.models.registry import MATCHING, PRETRAINING
from tests import warm
from tests.fake_gpu.__main__ import BUDGETS, VERSIONS
from tests.fake_gpu.device import OLDEST
from tests.fake_gpu.inputs import TRUNKS

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST, reason="torch < 2.13 has no device written in Python"
)
COMMITTED = json.loads(BUDGETS.read_text())
REWRITE = "write the budgets anew: python -m tests.fake_gpu --write"
WAITING = {"item": "item", "mask": "boolean mask", "copy": "blocking copy to the GPU"}
Counts = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def counts() -> Counts:
    """What all cases counted, in a process of their own."""
    done = warm.run("tests.fake_gpu", ranks=0, environment={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_every_method_and_trunk_has_a_budget(counts: Counts) -> None:
    assert {case for case in counts if not case.startswith("fault/")} == {*COMMITTED["cases"]}
    assert {part for case in counts for part in case.split("/")} >= {*PRETRAINING, *MATCHING, *TRUNKS, "bf16", "fp16"}


@pytest.mark.parametrize("case", COMMITTED["cases"])
def test_a_case_stays_within_its_budget(counts: Counts, case: str) -> None:
    """Neither may be larger, so that a budget falls and never rises.

    Kernels depend on the versions of torch and transformers; they are compared for those of the budgets only.
    """
    assert case in counts, f"{case}: no longer there; {REWRITE}"
    found, budget = counts[case], COMMITTED["cases"][case]
    assert "error" not in found, found["error"]
    for what in budget.keys() - (set() if COMMITTED["versions"] == VERSIONS else {"kernels"}):
        number = sum(found[what].values()) if what == "waits" else found[what]
        assert number <= budget[what], f"{case}: {number} {what}, at most {budget[what]} allowed: {found['waits']}"
        assert number == budget[what], f"{case}: only {number} {what} are left of {budget[what]}; {REWRITE}"


def test_a_tensor_on_the_wrong_device_is_found(counts: Counts) -> None:
    assert "Expected all tensors to be on the same device" in counts["fault/device"]["error"]


@pytest.mark.parametrize("fault", WAITING)
def test_what_makes_the_host_wait_is_found(counts: Counts, fault: str) -> None:
    ((wait, times),) = counts[f"fault/{fault}"]["waits"].items()
    assert wait.startswith(f"{WAITING[fault]} at fake_gpu/passes.py:")
    assert times == 1


def test_a_layer_without_fault_does_not_wait(counts: Counts) -> None:
    assert counts["fault/none"]["waits"] == {}
