"""Asking hosts by ssh; tests with real hosts are in tests/trainer/launches/test_hosts.py."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from deepsiam.trainer.cluster.hosts.ask import ask
from tests.trainer.cluster.hosts.test_checks import FACTS


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of ssh; it prints the bytes of the file beside it, and ends with the code of another."""
    (tmp_path / "ssh").write_text(
        f"#!/bin/sh\ncat {tmp_path}/said\ncat {tmp_path}/said >&2\nexit $(cat {tmp_path}/code)\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "code").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_banner_in_another_encoding_is_no_error(ssh: Path) -> None:
    (ssh / "said").write_bytes(b"M\xfchle\n" + json.dumps(asdict(FACTS)).encode() + b"\n")
    (answer,) = ask(["a"]).values()
    assert not isinstance(answer, str)
    assert answer.versions == FACTS.versions
    (ssh / "code").write_text("1")
    (ssh / "said").write_bytes(b"M\xfchle is closed\n")
    assert ask(["a"]) == {"a": "M\ufffdhle is closed"}
