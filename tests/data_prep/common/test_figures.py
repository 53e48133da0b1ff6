"""Figures: their panels, and their files."""

from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.figures import new_figure, save

pytest.importorskip("matplotlib")  # an extra


def test_a_figure_has_plain_panels_row_by_row(tmp_path: Path) -> None:
    figure, panels = new_figure(3, width=2, height=1, rows=2)
    assert len(panels) == 6
    assert tuple(figure.get_size_inches()) == (6, 2)
    corners = [panel.get_subplotspec() for panel in panels]
    assert [(corner.rowspan.start, corner.colspan.start) for corner in corners if corner] == [
        (row, column) for row in range(2) for column in range(3)
    ]
    assert not any(panel.spines[side].get_visible() for panel in panels for side in ("top", "right"))
    assert save(figure, tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    figure, _ = new_figure(1, width=1, height=1)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError):
        save(figure, tmp_path / "file" / "figure.png")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
