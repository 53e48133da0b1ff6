"""Kernels that torch.compile would join: their number and bytes, against hand computation."""

import torch
from torch import nn

from benchmarks.step.fusion import KernelsOfLayers, fused

ROWS, WIDTH = 1000, 64
STATES = 4 * ROWS * WIDTH  # bytes
WEIGHTS = 4 * WIDTH * WIDTH


class Layer(nn.Module):
    """Two products with element-wise operations after each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(WIDTH, WIDTH, bias=False, device="meta") for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH, device="meta")

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Transform, and add the input."""
        return self.norm(states + self.second(torch.relu(self.first(states) * 2)))


def _count(compiled: bool, backward: bool = False) -> KernelsOfLayers:
    layer = Layer()
    states = torch.empty(ROWS, WIDTH, device="meta", requires_grad=backward)
    kernels = KernelsOfLayers("meta", [layer] if compiled else [])
    with kernels.hooked(), kernels, torch.set_grad_enabled(backward):
        out = layer(states)
        if backward:
            out.sum().backward()
        else:
            torch.sigmoid(out)
    return kernels


def test_the_kernels_between_two_products_become_one_that_writes_only_what_is_used_later() -> None:
    kernels = fused(_count(compiled=True).all)
    assert [kernel.name for kernel in kernels] == ["sigmoid", "mm", "mm", "fused", "fused"]
    between, last = (kernel.bytes for kernel in kernels[3:])
    assert between == 2 * STATES  # one product's result, the other's input; not what is between them
    assert last == 3 * STATES + 2 * 4 * WIDTH  # the second product, the layer's input, the result; the norm's weights
    assert sum(kernel.bytes for kernel in kernels) < sum(kernel.bytes for kernel in _count(compiled=True).started)


def test_what_the_backward_pass_reads_is_stored() -> None:
    alone = fused(_count(compiled=True).all)[3].bytes
    kernels = fused(_count(compiled=True, backward=True).all)
    between = next(kernel.bytes for kernel in kernels if kernel.name == "fused")
    assert between == alone == 2 * STATES  # ReLU keeps its result alone, which the second product reads as well
    assert sum(kernel.name.endswith("of weights") for kernel in kernels) == 1
    assert sum(kernel.flops for kernel in kernels) == 6 * 2 * ROWS * WIDTH * WIDTH


def test_nothing_is_joined_outside_compiled_layers() -> None:
    kernels = _count(compiled=False, backward=True)
    assert fused(kernels.all) == kernels.started
