"""The cores that a process may use, with files of the system as hosts and containers have them."""

import os
from pathlib import Path

import pytest

from deepsiam.data_prep.common import environment
from deepsiam.data_prep.common.environment import usable_cores, variable

V2 = "31 23 0:41 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate"
V1 = """32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 {root} /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"""
HOST = "23 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw"


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of 16 cores without control groups."""
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    return tmp_path


@pytest.mark.parametrize(
    ("groups", "mounts", "quotas", "expected"),
    [
        ("0::/", V2.format(root="/"), {}, 16),
        ("0::/", V2.format(root="/"), {"cpu.max": "300000 100000"}, 3),  # a container with a namespace of its own
        ("0::/", V2.format(root="/"), {"cpu.max": "max 100000"}, 16),
        ("0::/", V2.format(root="/"), {"cpu.max": "9900000 100000"}, 16),  # more than there are
        ("0::/a/b", V2.format(root="/"), {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 3),
        ("0::/a/b", V2.format(root="/"), {"a/b/cpu.max": "20000 100000", "a/cpu.max": "400000 100000"}, 1),
        ("0::/a", V2.format(root="/"), {"b/cpu.max": "100000 100000"}, 16),  # of other processes
        ("0::/../b", V2.format(root="/"), {"cpu.max": "garbage"}, 16),
        ("4:cpu,cpuacct:/a\n0::/", V1.format(root="/"), {"cpu,cpuacct/a/v1": "150000 100000"}, 2),
        ("4:cpu,cpuacct:/a/b\n3:cpuset:/c", V1.format(root="/"), {"cpu,cpuacct/a/v1": "400000 100000"}, 4),
        ("4:cpu,cpuacct:/a", V1.format(root="/"), {"cpu,cpuacct/a/v1": "-1 100000"}, 16),
        ("4:cpu,cpuacct:/docker/x/y", V1.format(root="/docker/x"), {"cpu,cpuacct/v1": "200000 50000"}, 4),
        ("4:cpu,cpuacct:/docker/x", V1.format(root="/other"), {"cpu,cpuacct/v1": "200000 100000"}, 2),
        ("no groups", "no mounts", {}, 16),
    ],
)
def test_the_smallest_quota_counts(
    system: Path, groups: str, mounts: str, quotas: dict[str, str], expected: int
) -> None:
    (system / "proc/self").mkdir(parents=True)
    (system / "proc/self/cgroup").write_text(f"{groups}\n")
    (system / "proc/self/mountinfo").write_text(f"{HOST}\n{mounts}\n")
    for name, value in quotas.items():
        path = system / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "v1":
            for file, number in zip(("cpu.cfs_quota_us", "cpu.cfs_period_us"), value.split(), strict=True):
                path.with_name(file).write_text(f"{number}\n")
        else:
            path.write_text(f"{value}\n")
    assert usable_cores() == expected


def test_an_affinity_counts_and_systems_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert usable_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores() == 6


@pytest.mark.parametrize("before", [None, "old"])
def test_a_variable_is_set_in_the_block_alone(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("DEEPSIAM_TEST", raising=False)
    else:
        monkeypatch.setenv("DEEPSIAM_TEST", before)
    with variable("DEEPSIAM_TEST", "new"):
        assert os.environ["DEEPSIAM_TEST"] == "new"
    assert os.environ.get("DEEPSIAM_TEST") == before
