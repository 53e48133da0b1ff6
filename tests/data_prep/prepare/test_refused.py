"""A command that is given the wrong kind of file leaves nothing behind."""

import os
from pathlib import Path

import pytest

from data_prep.__main__ import main
from tests.data_prep import raw


def test_the_wrong_source_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump = raw.write_wikipedia(tmp_path / "pages-articles.xml", raw.texts(3))
    with pytest.raises(SystemExit) as stopped:
        main(["bookcorpus", str(dump), "--out", str(tmp_path / "out"), "--workers", "1"])
    assert stopped.value.code == 2
    assert "not text; use the command wikipedia" in capfd.readouterr().err
    assert os.listdir(tmp_path) == [dump.name]
