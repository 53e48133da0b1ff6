"""The memory of a preparation grows neither with the input nor with the length of a line."""

import os
from pathlib import Path

import pytest

from tests.data_prep import raw

GIGABYTE = 1 << 30


def peak(*command: object) -> tuple[int, str, int]:
    """Return exit code, stderr and peak memory, in bytes, of a command in its own process."""
    run = raw.start("jsonl", *command)
    assert run.stderr
    message = run.stderr.read()
    _, status, usage = os.wait4(run.pid, 0)
    return os.waitstatus_to_exitcode(status), message, usage.ru_maxrss * 1024


@pytest.mark.slow
def test_a_document_of_200_megabytes_in_one_line_is_named_and_not_held(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with open(file, "wb") as stream:
        stream.write(raw.jsonl(1000) + b'{"text": "')
        for _ in range(200):
            stream.write(b"word " * 200_000)
        stream.write(b'"}\n' + raw.jsonl(1000, 1))
    code, message, memory = peak(file, "--out", tmp_path / "out")
    assert (code, message) == (0, f"bad record: {file}: line 1,001: more than 16,777,216 bytes\n")
    assert len(raw.documents(tmp_path / "out")) == 2000
    assert memory < 1.5 * GIGABYTE


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    tok = raw.vocabulary(tmp_path / "tokenizer.json")  # without it, 32 MiB of text are held to train one
    peaks = {}
    for times in (1, 4, 16):
        file = tmp_path / f"{times}.jsonl"
        file.write_bytes(b"".join(raw.jsonl(8000, seed) for seed in range(times)))
        options = ["--shards", 4 * times, "--paragraphs", "--tokenizer", tok]
        code, message, peaks[times] = peak(file, "--out", tmp_path / str(times), *options)
        assert code == 0, message
    assert peaks[16] < 1.25 * peaks[4]
    assert peaks[4] < 1.25 * peaks[1]
