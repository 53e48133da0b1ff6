"""hostfile.example is what DeepSpeed's own parser accepts."""

from deepspeed.launcher.runner import fetch_hostfile

from tests.toy import ROOT


def test_deepspeed_reads_the_example() -> None:
    assert dict(fetch_hostfile(str(ROOT / "hostfile.example"))) == {"node1": 8, "node2": 8}
