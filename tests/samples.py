"""Real text and labelled collections for slow tests; tests are skipped where the data are absent."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("DEEPSIAM_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def needs(folder: str) -> pytest.MarkDecorator:
    """Skip a test unless DATA/FOLDER exists."""
    reason = f"no {folder}/ in $DEEPSIAM_DATA, nor in ../shared/data next to the checkout"
    return pytest.mark.skipif(not (DATA / folder).is_dir(), reason=reason)
