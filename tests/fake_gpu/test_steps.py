"""The engine on a fake GPU as rank 0 of 8: no wait and no kernel beyond the budgets, under every DeepSpeed file."""

import pytest

from tests.fake_gpu.counts import Counts, budgets, check, counted, needs_fake_gpu

pytestmark = needs_fake_gpu


@pytest.fixture(scope="module")
def counts() -> Counts:
    return counted("steps")


def test_every_case_has_a_budget(counts: Counts) -> None:
    assert counts.keys() == budgets("steps").keys()


@pytest.mark.parametrize("case", budgets("steps"))
def test_a_step_stays_within_its_budget(counts: Counts, case: str) -> None:
    check(case, counts, "steps")
