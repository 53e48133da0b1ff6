import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from deepsiam.data_prep.common import streams
streams.set_up(lossy=True)
for line in range(3):
    print("Fluß № \\udce9", line)
    print("progress", file=sys.stderr)
read, write = os.pipe()
assert min(read, write) > 2  # the numbers of the standard streams are taken
sys.exit(7)
"""


def run(redirected: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = f'exec "{sys.executable}" -c "$PROGRAM" {redirected}'
    return subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PROGRAM": PROGRAM} | variables, capture_output=True
    )


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("utf-8:strict", "Fluß № ".encode() + b"\xe9"),  # a file's name may be any bytes
        ("ascii", rb"Flu\xdf \u2116 " + b"\xe9"),
        ("latin-1", b"Flu\xdf " + rb"\u2116 " + b"\xe9"),
    ],
)
def test_any_text_can_be_printed_in_any_encoding(encoding: str, printed: bytes) -> None:
    ended = run("", PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (7, printed + b" 0")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirected", "said"),
    [
        (">/dev/full", b"stdout: No space left on device: its lines are lost, the work goes on"),
        ("| true", b""),  # the program may be quicker
        (">&-", b"progress"),
        ("<&- >&- 2>&-", b""),
        (">/dev/full 2>&1", b""),
    ],
)
def test_a_log_that_cannot_be_written_ends_nothing(redirected: str, said: bytes, unbuffered: str) -> None:
    ended = run(redirected, PYTHONUNBUFFERED=unbuffered)
    assert ended.returncode == (0 if redirected == "| true" else 7)
    assert said in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.count(b"stdout") <= 1
