"""Curves of several runs: scalars by step, smoothing, one figure."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.tensorboard import SummaryWriter

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.analysis.curves import draw_curves, read_curve
from deepsiam.trainer.analysis.plots import read_scalars, smooth


def log(run: Path, values: list[float], start: int = 0, purge: int | None = None) -> None:
    with SummaryWriter(str(run / "tensorboard"), purge_step=purge) as writer:
        for i, value in enumerate(values):
            writer.add_scalar("loss/mlm", value, start + 10 * i)


def test_a_step_logged_again_by_a_resumed_run_counts_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log(tmp_path, [7, 6, 5, 4])
    (first,) = (tmp_path / "tensorboard").iterdir()
    first.rename(first.with_name("events.out.tfevents.0000000001"))  # by its name, long before the next one
    log(tmp_path, [5.5, float("nan"), 3], start=20, purge=20)  # resumed at step 20
    scalars = read_scalars(tmp_path)
    assert scalars.keys() == {"loss/mlm"}
    steps, values = scalars["loss/mlm"]
    assert steps.tolist() == [0, 10, 20, 40]
    assert values.tolist() == [7, 6, 5.5, 3]
    assert not caplog.records  # no warning about a restart from TensorBoard


def test_a_folder_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: has logged nothing"):
        read_scalars(tmp_path / "nowhere")


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=200))
def test_smoothing_is_an_average_of_neighbours(values: list[float]) -> None:
    smoothed = smooth(np.array(values))
    assert len(smoothed) == len(values)
    assert smoothed[0] == pytest.approx(values[0])
    half = max(1, len(values) // 20)
    middle = len(values) // 2
    if half <= middle < len(values) - half:
        assert smoothed[middle] == pytest.approx(np.mean(values[middle - half : middle + half + 1]), abs=1e-9)
    assert smoothed[-1] == pytest.approx(np.mean(values[-half - 1 :]), abs=1e-9)


def test_a_curve_is_read_by_its_tag(tmp_path: Path) -> None:
    log(tmp_path, [0.5, 2.5, 4.5], start=1)
    steps, values = read_curve(tmp_path, "loss/mlm")
    assert steps.tolist() == [1, 11, 21]
    assert values.tolist() == [0.5, 2.5, 4.5]
    with pytest.raises(InputError, match="has not logged loss/decoder; it has loss/mlm"):
        read_curve(tmp_path, "loss/decoder")


def test_more_curves_than_colors_are_drawn(tmp_path: Path) -> None:
    curves = {f"run {i}": (np.arange(3), np.full(3, float(i))) for i in range(9)}
    assert draw_curves(curves, "loss/decoder", tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
