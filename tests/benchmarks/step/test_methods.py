"""The plain implementation in the methods benchmark computes the same losses and gradients."""

import pytest
import torch

from benchmarks.common.step_cases import rate_of_pass
from benchmarks.step.methods import agree, ways_of
from deepsiam.models.registry import PRETRAINING

SIZES = {"tokens": 32, "vocab": 100, "hidden": 16, "layers": 3, "batch": 3}


@pytest.mark.parametrize("name", [*PRETRAINING])
def test_the_plain_way_has_the_same_losses_and_gradients(name: str) -> None:
    model, batch, ways = ways_of(name, SIZES)
    agree(model, batch, ways["plain"])
    gradients = {}
    model.eval()
    for way, forward in ways.items():
        assert rate_of_pass(model, batch, forward, torch.float32) > 0
        gradients[way] = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(gradients["plain"], gradients["deepsiam"], rtol=1e-3, atol=1e-5)
    assert gradients["plain"]
