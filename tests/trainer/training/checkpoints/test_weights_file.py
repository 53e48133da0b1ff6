"""The file of weights, against the safetensors library."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from deepsiam.trainer.training.checkpoints.weights_file import write_weights
from deepsiam.trainer.training.engine.hashed_file import hashed_file


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
        write_weights(file, dict(sorted(shapes.items())), (weights[name] for name in sorted(weights)))
    assert (tmp_path / "file").read_bytes() == safetensors.torch.save(weights)
    read = safetensors.torch.load_file(tmp_path / "file")
    assert read.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(read[name], tensor, rtol=0, atol=0)


def test_other_precisions_and_layouts_are_written_in_fp32(tmp_path: Path) -> None:
    matrix = torch.randn(4, 3)
    with hashed_file(tmp_path / "file") as file:
        write_weights(file, {"half": (4, 3), "turned": (3, 4)}, [matrix.bfloat16(), matrix.T])
    read = safetensors.torch.load_file(tmp_path / "file")
    torch.testing.assert_close(read["half"], matrix.bfloat16().float(), rtol=0, atol=0)
    torch.testing.assert_close(read["turned"], matrix.T.contiguous(), rtol=0, atol=0)


def test_a_weight_that_is_not_what_the_header_says_is_refused(tmp_path: Path) -> None:
    for weights in ([torch.zeros(3)], [torch.zeros(2), torch.zeros(2)], []):
        with hashed_file(tmp_path / "file") as file, pytest.raises(ValueError, match="shape|shorter|longer"):
            write_weights(file, {"a": (2,)}, weights)
