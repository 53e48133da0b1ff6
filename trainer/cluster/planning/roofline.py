"""How long a device takes for kernels that were counted: the roofline of Williams, Waterman and Patterson (2009).

A kernel takes the longer of two times, that of its bytes and that of its FLOPs, and a fixed time before the next.
All kernels run one after another. Where Python starts them more slowly than the device runs them, Python decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deepsiam.trainer.cluster.planning.compute import Work
from deepsiam.trainer.cluster.planning.kernels import Kernel
from deepsiam.trainer.training.engine.hardware import LAUNCH, PRODUCTS, START, Device

BANDWIDTH = 0.9  # of the memory's: 3.0 of an H100's 3.35 TB/s
# of the peak, forward and backward at 512 tokens and heads of 64: FlashAttention-2 on an H100 (Dao, 2023), and the
# memory-efficient kernel, which torch takes where there is a mask
ATTENTION = {"flash": 0.25, "efficient": 0.12}
# that DeepSpeed 0.19.8 moves per parameter in a step, at ZeRO-1 in half precision, counted on its own step:
GRADIENT_BYTES = 14  # of all gradients: copied into buckets, divided, flattened
STATE_BYTES = 74  # of a rank's part: cast, norm, clipping, torch's fused AdamW


@dataclass(frozen=True)
class Roofline:
    """A device and the shares of its peaks that kernels attain: assumed, not measured."""

    device: Device
    products: float = PRODUCTS
    launch: float = LAUNCH
    start: float = START

    def assumptions(self) -> str:
        """Return what is assumed, in words."""
        attention = ", ".join(f"{share:.0%} {kind}" for kind, share in ATTENTION.items())
        return (
            f"{self.products:.0%} of {self.device.peak / 1e12:g} TFLOP/s in products, in attention {attention}; "
            f"{BANDWIDTH:.0%} of {self.device.memory_bandwidth / 1e12:.3g} TB/s; "
            f"{1e6 * self.launch:g} us between kernels, {1e6 * self.start:g} us to start one"
        )

    def seconds(self, kernel: Kernel, scale: float = 1.0) -> float:
        """Return the seconds of a kernel on the device, if its inputs were `scale` times as large."""
        moving = kernel.bytes / (BANDWIDTH * self.device.memory_bandwidth)
        shares = (share for kind, share in ATTENTION.items() if f"{kind}_attention" in kernel.name)
        computing = kernel.flops / (next(shares, self.products) * self.device.peak)
        return scale * max(moving, computing) + self.launch

    def total(self, kernels: Iterable[Kernel] | Mapping[Kernel, int], scale: float = 1.0) -> float:
        """Return the seconds of kernels that are started one after another."""
        counted = Counter(kernels)
        on_device = sum(number * self.seconds(kernel, scale) for kernel, number in counted.items())
        return max(on_device, self.start * counted.total())

    def micro_batch(self, work: Work, examples: int) -> float:
        """Return the seconds of a micro-batch, forward and backward."""
        return self.total(work.kernels, examples / work.examples)

    def optimizer(self, trained: int, partitions: int) -> float:
        """Return the seconds that DeepSpeed takes besides, on all gradients and on a rank's part of the states."""
        moved = trained * GRADIENT_BYTES + trained / partitions * STATE_BYTES
        return moved / (BANDWIDTH * self.device.memory_bandwidth)
