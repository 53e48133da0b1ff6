"""Curves of several runs, read by tag and drawn into one figure."""

from pathlib import Path

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.analysis.curves import draw_curves, read_curve


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with SummaryWriter(str(tmp_path / "tensorboard")) as writer:
        for step in (1, 5, 9):
            writer.add_scalar("loss/decoder", step / 2, step)
    return tmp_path


def test_a_curve_is_read_by_its_tag(run: Path) -> None:
    steps, values = read_curve(run, "loss/decoder")
    assert steps.tolist() == [1, 5, 9]
    assert values.tolist() == [0.5, 2.5, 4.5]


def test_an_unknown_tag_is_refused_with_those_that_exist(run: Path) -> None:
    with pytest.raises(InputError, match="has not logged loss/mlm; it has loss/decoder"):
        read_curve(run, "loss/mlm")


def test_more_curves_than_colors_are_drawn(tmp_path: Path) -> None:
    curves = {f"run {i}": (np.arange(3), np.full(3, float(i))) for i in range(9)}
    assert draw_curves(curves, "loss/decoder", tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
