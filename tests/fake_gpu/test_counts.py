"""Methods and the engine, rank 0 of 8, on a fake GPU: no tensor on the wrong device, no wait and kernel over budget."""

import pytest

from deepsiam.models.registry import MATCHING, PRETRAINING
from tests.fake_gpu.counts import Counts, budgets, check, counted, needs_fake_gpu
from tests.fake_gpu.inputs import TRUNKS

pytestmark = needs_fake_gpu
WAITING = {"item": "item", "mask": "boolean mask", "copy": "blocking copy to the GPU"}


@pytest.fixture(scope="module")
def counts() -> Counts:
    return counted()


def test_every_method_and_trunk_has_a_budget(counts: Counts) -> None:
    assert {case for case in counts if not case.startswith("fault/")} == set(budgets())
    assert {part for case in counts for part in case.split("/")} >= {*PRETRAINING, *MATCHING, *TRUNKS, "bf16", "fp16"}


@pytest.mark.parametrize("case", budgets())
def test_a_case_stays_within_its_budget(counts: Counts, case: str) -> None:
    check(case, counts)


def test_a_tensor_on_the_wrong_device_is_found(counts: Counts) -> None:
    assert "Expected all tensors to be on the same device" in counts["fault/device"]["error"]


@pytest.mark.parametrize("fault", WAITING)
def test_what_makes_the_host_wait_is_found(counts: Counts, fault: str) -> None:
    ((wait, times),) = counts[f"fault/{fault}"]["waits"].items()
    assert wait.startswith(f"{WAITING[fault]} at fake_gpu/passes.py:")
    assert times == 1


def test_a_layer_without_fault_does_not_wait(counts: Counts) -> None:
    assert counts["fault/none"]["waits"] == {}
