"""The table of GPUs: names as drivers give them, peaks as data sheets give them."""

import pytest

from deepsiam.trainer.training.engine.hardware import GPUS, NAMES, peak_of

TERA = 1e12


@pytest.mark.parametrize(
    ("name", "dense", "with_sparsity"),  # TFLOP/s of bf16, or fp16 where there is no bf16
    [
        ("NVIDIA B300 SXM6 AC", 2250, 4500),
        ("NVIDIA B200", 2250, 4500),
        ("NVIDIA GH200 480GB", 989, 1979),
        ("NVIDIA H200", 989, 1979),
        ("NVIDIA H200 NVL", 835, 1671),
        ("NVIDIA H100 80GB HBM3", 989, 1979),
        ("NVIDIA H100 NVL", 835, 1671),
        ("NVIDIA H100 PCIe", 756, 1513),
        ("NVIDIA A100-SXM4-80GB", 312, 624),
        ("A100-SXM4-40GB", 312, 624),
        ("NVIDIA A100 80GB PCIe", 312, 624),
        ("NVIDIA A100-PCIE-40GB", 312, 624),
        ("NVIDIA L40S", 362, 733),
        ("NVIDIA L40", 181, 362),
        ("NVIDIA L4", 121, 242),
        ("NVIDIA A10", 125, 250),
        ("NVIDIA A10G", 70, 140),
        ("NVIDIA GeForce RTX 4090", 165, 330),
        ("Tesla V100-SXM2-32GB", 125, None),
        ("Tesla V100-PCIE-16GB", 112, None),
        ("Tesla T4", 65, None),
        ("AMD Instinct MI300X", 1307, 2615),
        ("AMD Instinct MI250X / MI250", 191.5, None),  # one of its two dies
    ],
)
def test_peaks_are_dense_ones(name: str, dense: float, with_sparsity: float | None) -> None:
    assert peak_of(name) == dense * TERA
    assert with_sparsity is None or 1.9 < with_sparsity / dense < 2.1


@pytest.mark.parametrize(
    "name",
    ["NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA T400", "Quadro T1000", "NVIDIA A100X", ""],
)
def test_a_device_with_a_similar_name_is_not_taken_for_another(name: str) -> None:
    assert peak_of(name) is None


def test_every_gpu_has_a_driver_s_name_and_plausible_sizes() -> None:
    assert set(NAMES.values()) == set(GPUS)
    for gpu in GPUS.values():
        assert 50 * TERA < gpu.peak < 3000 * TERA
        assert 16e9 <= gpu.memory <= 288e9
        assert gpu.within < gpu.memory_bandwidth
        assert 100 < gpu.peak / gpu.memory_bandwidth < 450  # operations for each byte
