"""GPUs and their usual servers, from the manufacturers' data sheets, and what a plan assumes of them otherwise.

Looked up for the share of the peak in a progress line, and by `trainer.plan`.
"""

from dataclasses import dataclass

PRODUCTS = 0.58  # of a device's peak: large products attain 72 % of the 800 TFLOP/s that an H100 sustains, of 989
LAUNCH = 2e-6  # seconds from the end of a kernel to the start of the next
START = 10e-6  # seconds that Python takes to start a kernel, forward and backward


@dataclass(frozen=True)
class Device:
    """What one rank computes on, and what connects it to others."""

    peak: float  # FLOP/s of dense matrix products, in half precision; on a CPU in fp32
    memory: float  # bytes
    memory_bandwidth: float  # bytes a second
    within: float  # bytes a second to the other devices of its host, in each direction
    network: float  # bytes a second of its usual host to other hosts, in each direction


# the manufacturers' data sheets: without sparsity, sums in fp32; memory as sold
GPUS = {
    "b300": Device(2250e12, 288e9, 8e12, 900e9, 800e9),  # HGX; 8 x 800 Gb/s
    "b200": Device(2250e12, 180e9, 8e12, 900e9, 400e9),  # HGX; 8 x 400 Gb/s
    "gh200": Device(989e12, 96e9, 4e12, 450e9, 50e9),  # one in a host; 400 Gb/s
    "h200": Device(989e12, 141e9, 4.8e12, 450e9, 400e9),  # SXM, DGX: 8 GPUs, 8 x 400 Gb/s
    "h200-nvl": Device(835e12, 141e9, 4.8e12, 64e9, 50e9),  # PCIe 5, without bridges; 400 Gb/s
    "h100": Device(989e12, 80e9, 3.35e12, 450e9, 400e9),  # SXM, DGX: 8 x 400 Gb/s
    "h100-nvl": Device(835e12, 94e9, 3.9e12, 64e9, 50e9),  # PCIe 5, without bridges; 400 Gb/s
    "h100-pcie": Device(756e12, 80e9, 2e12, 64e9, 50e9),  # PCIe 5, without bridges; 400 Gb/s
    "a100": Device(312e12, 80e9, 2.04e12, 300e9, 200e9),  # SXM, DGX: 8 x 200 Gb/s
    "a100-40gb": Device(312e12, 40e9, 1.555e12, 300e9, 200e9),  # SXM, DGX: 8 x 200 Gb/s
    "a100-pcie": Device(312e12, 80e9, 1.935e12, 32e9, 25e9),  # PCIe 4, without bridges; 200 Gb/s
    "a100-pcie-40gb": Device(312e12, 40e9, 1.555e12, 32e9, 25e9),  # PCIe 4, without bridges; 200 Gb/s
    "l40s": Device(362e12, 48e9, 864e9, 32e9, 25e9),  # PCIe 4; 200 Gb/s
    "l40": Device(181e12, 48e9, 864e9, 32e9, 25e9),  # PCIe 4; 200 Gb/s
    "l4": Device(121e12, 24e9, 300e9, 32e9, 12.5e9),  # PCIe 4; 100 Gb/s
    "a10": Device(125e12, 24e9, 600e9, 32e9, 12.5e9),  # PCIe 4; 100 Gb/s
    "a10g": Device(70e12, 24e9, 600e9, 32e9, 12.5e9),  # AWS g5; 100 Gb/s
    "rtx-4090": Device(165e12, 24e9, 1.008e12, 32e9, 1.25e9),  # PCIe 4; 10 Gb/s
    "v100": Device(125e12, 32e9, 900e9, 150e9, 50e9),  # SXM, DGX-1: 4 x 100 Gb/s
    "v100-16gb": Device(125e12, 16e9, 900e9, 150e9, 50e9),  # SXM, DGX-1: 4 x 100 Gb/s
    "v100-pcie": Device(112e12, 32e9, 900e9, 16e9, 12.5e9),  # PCIe 3; 100 Gb/s
    "v100-pcie-16gb": Device(112e12, 16e9, 900e9, 16e9, 12.5e9),  # PCIe 3; 100 Gb/s
    "t4": Device(65e12, 16e9, 320e9, 16e9, 12.5e9),  # PCIe 3; 100 Gb/s
    "mi300x": Device(1307e12, 192e9, 5.3e12, 448e9, 400e9),  # OAM: 8 x 400 Gb/s
    "mi250x": Device(191.5e12, 64e9, 1.6e12, 50e9, 100e9),  # half of an OAM, which is a device to ROCm; 4 x 200 Gb/s
}
# the driver's names, as torch.cuda.get_device_name() returns them; another name may be another device
NAMES = {
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA B200": "b200",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA H200": "h200",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA L40S": "l40s",
    "NVIDIA L40": "l40",
    "NVIDIA L4": "l4",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "Tesla V100-SXM2-32GB": "v100",
    "Tesla V100-SXM2-16GB": "v100-16gb",
    "Tesla V100-PCIE-32GB": "v100-pcie",
    "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
    "Tesla T4": "t4",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI250X": "mi250x",
    "AMD Instinct MI250X / MI250": "mi250x",
}
# two cores with AVX2, as benchmarks/results/pretrain_step_cpu.json measured their matrix products; 1 Gb/s
CPU = Device(0.15e12, 16e9, 20e9, 5e9, 0.125e9)
DEVICES = {**GPUS, "cpu": CPU}
WITHOUT_BF16 = ("v100", "t4")  # what the names of GPUs that lack it begin with


def peak_of(name: str) -> float | None:
    """Return the peak of a GPU, given its driver's name for it; None if it is not known."""
    key = NAMES.get(name) or NAMES.get(f"NVIDIA {name}")  # older drivers leave out the manufacturer
    return GPUS[key].peak if key else None
