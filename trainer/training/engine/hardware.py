"""GPUs and their usual servers, from the manufacturers' data sheets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """What one rank computes on, and what connects it to others."""

    peak: float  # FLOP/s of dense matrix products, in half precision; on a CPU in fp32
    memory: float  # bytes
    memory_bandwidth: float  # bytes a second
    within: float  # bytes a second to the other devices of its host, in each direction
    network: float  # bytes a second of its usual host to other hosts, in each direction


# NVIDIA's data sheets; each key is a part of the driver's name for the device, a longer key before its own prefix
GPUS = {
    "H200": Device(989e12, 141e9, 4.8e12, 450e9, 400e9),  # DGX: 8 GPUs, 8 x 400 Gb/s
    "H100": Device(989e12, 80e9, 3.35e12, 450e9, 400e9),  # SXM; DGX: 8 x 400 Gb/s
    "A100": Device(312e12, 80e9, 2.04e12, 300e9, 200e9),  # SXM; DGX: 8 x 200 Gb/s
    "L40": Device(181e12, 48e9, 864e9, 32e9, 25e9),  # PCIe 4; 200 Gb/s
    "L4": Device(121e12, 24e9, 300e9, 32e9, 12.5e9),  # PCIe 4; 100 Gb/s
    "V100": Device(125e12, 32e9, 900e9, 150e9, 50e9),  # SXM; DGX-1: 4 x 100 Gb/s
    "T4": Device(65e12, 16e9, 320e9, 16e9, 12.5e9),  # PCIe 3; 100 Gb/s
}
# two cores with AVX2, as benchmarks/results/pretrain_step_cpu.json measured their matrix products; 1 Gb/s
CPU = Device(0.15e12, 16e9, 20e9, 5e9, 0.125e9)
DEVICES = {**{name.lower(): gpu for name, gpu in GPUS.items()}, "cpu": CPU}


def peak_of(name: str) -> float | None:
    """Return the peak of a GPU, given its driver's name for it; None if it is not known."""
    return next((gpu.peak for part, gpu in GPUS.items() if part in name), None)
