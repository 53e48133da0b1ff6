"""Every method on a real GPU: its losses and gradients are those of the CPU, and kernels without padding agree too."""

from __future__ import annotations

import copy

import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.arrays import on_device
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.training.recipe.build import build_model
from tests.fake_gpu.inputs import RECIPES, TRUNKS, batch_of, recipe_of, suited, trunk_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="compares a GPU with the CPU: there is no GPU"),
]
SCALE = 4
FP32 = 2e-3  # an error's norm, as a share of the value's


@pytest.mark.parametrize("model_type", TRUNKS)
@pytest.mark.parametrize("method", RECIPES)
def test_losses_and_gradients_are_the_cpu_s(method: str, model_type: str) -> None:
    recipe = suited(method, model_type)
    torch.manual_seed(0)
    try:
        model = build_model(recipe.method, trunk_of(recipe, model_type)).eval()
    except InputError as refusal:
        pytest.skip(f"refused: {refusal}")
    with torch.no_grad():  # texts that differ: new weights are so small that a contrast between them is noise in bf16
        for weight in model.parameters():
            weight.mul_(SCALE if weight.dim() > 1 else 1)
    batch = batch_of(recipe_of(method))
    expected = one_pass(copy.deepcopy(model), batch, "cpu")
    found = one_pass(copy.deepcopy(model).to("cuda"), batch, "cuda")
    half = one_pass(copy.deepcopy(model).to("cuda", torch.bfloat16), batch, "cuda")  # the kernels without padding
    half_cpu = one_pass(model.to(torch.bfloat16), batch, "cpu")
    for name, value in expected.items():
        assert error(found[name], value) < FP32, f"fp32: {name}"
        assert error(half[name], value) < 0.02 + 2 * error(half_cpu[name], value), f"bf16: {name}"


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the norm of an error as a share of the expected value's."""
    return float((found - expected).norm() / expected.norm().clamp(min=1e-3))


def one_pass(model: TrunkModel, batch: MicroBatch, device: str) -> dict[str, torch.Tensor]:
    """Return the losses, and all gradients as one vector, in fp64 on the CPU."""
    sums = model(**on_device(batch.arrays, device))
    sum(loss / batch.counts[term] for term, loss in sums.items()).backward()
    gradients = [p.grad for _, p in sorted(model.named_parameters()) if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    return {name: loss.detach().double().cpu() for name, loss in sums.items()} | {"gradient": flat.double().cpu()}
