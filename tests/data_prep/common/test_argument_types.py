"""Types of arguments on a command line."""

import pytest

from data_prep.__main__ import main


@pytest.mark.parametrize("command", [["text", "a.txt"], ["merge", "part"], ["docstrings"]])
def test_an_output_folder_has_a_name(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--out", ""])
    assert exit_.value.code == 2
    assert "argument --out: is empty: name a folder" in capsys.readouterr().err
