import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepsiam.data_prep.common import errors
from deepsiam.data_prep.common.errors import InputError, did_you_mean, exit_on_input_error


def test_an_input_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped, exit_on_input_error("tool"):
        raise InputError("a file: bad\nin two lines")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "tool: a file: bad in two lines\n"


def test_a_long_id_leaves_what_is_said_of_it() -> None:
    said = str(InputError(f"f.jsonl, line 3: {'x' * 1_000_000}\x1b[2J: no such document; remove the line"))
    assert len(said) < 2_100
    assert said.startswith("f.jsonl, line 3: xxx")
    assert said.endswith(r"xxx\x1b[2J: no such document; remove the line")


def test_other_errors_and_success_pass_through() -> None:
    with exit_on_input_error("tool"):
        pass
    with pytest.raises(ZeroDivisionError), exit_on_input_error("tool"):
        _ = 1 / 0


def test_ctrl_c_prints_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped, exit_on_input_error("tool"):
        raise KeyboardInterrupt
    assert stopped.value.code == 130
    assert capsys.readouterr().err.startswith("tool: interrupted")


def test_a_path_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = tmp_path / ("x" * 300)
    with pytest.raises(SystemExit) as stopped, exit_on_input_error("tool"):
        long.stat()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == f"tool: {long}: File name too long\n"
    with pytest.raises(FileNotFoundError), exit_on_input_error("tool"):  # a missing file is a bug: commands look first
        (tmp_path / "missing").stat()


PROGRAM = """
from deepsiam.data_prep.common import errors
from deepsiam.data_prep.common.errors import exit_on_input_error
with exit_on_input_error("tool"):
    print("x" * {size})
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (">/dev/full", 2, "tool: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
        (">&- <&- 2>&-", 0, ""),
    ],
)
@pytest.mark.parametrize("size", [3, 100_000])
def test_an_output_that_cannot_be_written_is_one_line(end: str, code: int, said: str, size: int) -> None:
    command = f'exec "{sys.executable}" -c "$PROGRAM" {end}'
    environment = {**os.environ, "PROGRAM": PROGRAM.format(size=size)}
    ended = subprocess.run(["sh", "-c", command], env=environment, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (code, said)


def test_a_full_disk_that_is_not_the_outputs_is_not_blamed_on_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = {errors.SHARED_MEMORY: 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=rooms.get(folder, 1 << 30)))
    with pytest.raises(SystemExit) as stopped, exit_on_input_error("tool"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert stopped.value.code == 2
    said = "tool: No space left on device, in a file without a name: make room in /dev/shm\n"
    assert capsys.readouterr().err == said


def test_the_nearest_known_name_is_suggested() -> None:
    assert did_you_mean("sede", ["seed", "steps"]) == "; did you mean seed?"
    assert did_you_mean("sede", iter(["seed"]), prefix="data.") == "; did you mean data.seed?"
    assert did_you_mean("sede", ["batch"]) == ""
    assert did_you_mean("sede", ["seed"], cutoff=0.9) == ""
