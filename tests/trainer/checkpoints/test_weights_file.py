"""The file of weights, against the safetensors library."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from trainer.checkpoints.weights_file import write_weights
from trainer.engine.hashed_file import hashed_file


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"weight": (3,)},
        {"scalar": (), "b.weight": (5, 7), "a.weight": (2, 3, 4), "empty": (0, 3)},
        {"layer.10": (1,), "layer.9": (2,), "é": (2,), "Z": (1,), "\U0001f600": (1,), "\uffee": (3,)},
        {'a "quoted"\n\t\x01\\name/': (2, 2)},
    ],
)
def test_its_bytes_are_those_of_the_library(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    weights = {name: torch.randn(shape) for name, shape in shapes.items()}
    with hashed_file(tmp_path / "file") as file:
        write_weights(file, weights)
    assert (tmp_path / "file").read_bytes() == safetensors.torch.save(weights)
    read = safetensors.torch.load_file(tmp_path / "file")
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(read[name], tensor, rtol=0, atol=0)
