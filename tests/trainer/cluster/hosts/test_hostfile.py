"""Hostfiles: read as DeepSpeed reads them; those it would refuse are refused with the faulty line."""

from pathlib import Path

import pytest
from deepspeed.launcher.runner import fetch_hostfile

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.cluster.hosts.hostfile import read
from tests.toy import ROOT

SOUND = """# the cluster

node1 slots=8
  node-2.example.org   slots=4   # the old one
user@10.0.0.3 slots=1\t
"""


@pytest.mark.parametrize("text", [SOUND, SOUND.replace("\n", "\r\n")], ids=["LF", "CRLF"])
def test_a_hostfile_is_read_as_deepspeed_reads_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostfile"
    path.write_bytes(text.encode())
    assert read(path) == {"node1": 8, "node-2.example.org": 4, "user@10.0.0.3": 1}
    assert read(path) == fetch_hostfile(str(path))


def test_the_example_is_one() -> None:
    path = ROOT / "hostfile.example"
    assert read(path) == fetch_hostfile(str(path)) == {"node1": 8, "node2": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node1 slots=8\nnode2 slot=8\n", ":2: 'node2 slot=8' is not `NAME slots=NUMBER`"),
        ("node1\n", ":1: 'node1' is not"),
        ("node1:8\n", ":1: 'node1:8' is not"),
        ("node1 slots=8x\n", ":1: 'node1 slots=8x' is not"),
        ("node1 slots = 8\n", ":1: 'node1 slots = 8' is not"),
        ("node1 slots=-1\n", ":1: 'node1 slots=-1' is not"),
        ("-oProxyCommand=x slots=1\n", ":1: '-oProxyCommand=x slots=1' is not"),
        ("node1 # 8 GPUs\n", ":1: 'node1 # 8 GPUs' is not"),
        ("\ufeffnode1 slots=8\n", ":1: '\\\\ufeffnode1 slots=8' is not"),
        ("node1 slots=0\n", ":1: node1 has no slots: give it one for each GPU"),
        ("\nnode1 slots=8\nnode2 slots=8\nnode1 slots=4\n", ":4: node1 is named in line 2 already"),
        ("node1 slots=1000000000\n", ":1: more than 1,024 slots, the most of a host"),
        (f"node1 slots={'9' * 5000}\n", ":1: more than 1,024 slots"),
        ("".join(f"n{number} slots=8\n" for number in range(100_000)), ":10001: more than 10,000 hosts"),
        ("#" * 5_000_000, ": larger than 4,194,304 bytes"),
        ("", ": names no host"),
        ("# nobody\n\n", ": names no host"),
    ],
)
def test_a_line_that_is_no_host_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hostfile"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hostfile"):
        read(tmp_path / "hostfile")
    (tmp_path / "hostfile").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text"):
        read(tmp_path / "hostfile")
