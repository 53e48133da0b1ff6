"""What surrounds this process: the cores that an affinity and a container's quotas leave it, and its variables."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

ROOT = Path("/")
_GROUP = re.compile(r"\d+:(.*?):(/.*)")
_MOUNT = re.compile(r"\d+ \d+ \S+ (\S+) (\S+) .*- (cgroup2?) \S+ (\S+)")


def usable_cores() -> int:
    """Return the number of cores, at least 1, that the affinity (taskset, cpusets) and all quotas allow."""
    of_affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([of_affinity, *map(math.ceil, _quotas())]))


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable inside the block; restore it afterwards."""
    old_value = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if old_value is None:
            del os.environ[name]
        else:
            os.environ[name] = old_value


@contextmanager
def restored_variables() -> Iterator[None]:
    """Restore all variables after the block."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _quotas() -> Iterator[float]:
    """Yield the cores of each quota: of this process's control groups, and of the groups that these are in.

    Version 2 has one tree of groups, version 1 one for each controller; /proc/self/mountinfo says where the trees are.
    A container may see only the part of a tree that begins at its own group, the mount's `root`.
    """
    groups: dict[str, str] = {}  # by controller; version 2 names none
    for controllers, path in _matches(_GROUP, "proc/self/cgroup"):
        groups |= dict.fromkeys(controllers.split(","), path)
    for root, point, kind, options in _matches(_MOUNT, "proc/self/mountinfo"):
        path = groups.get("cpu" if kind == "cgroup" else "", "")
        if not path or (kind == "cgroup" and "cpu" not in options.split(",")):
            continue
        top = ROOT / point.lstrip("/")
        is_inside = PurePosixPath(path).is_relative_to(root)
        folder = top / PurePosixPath(path).relative_to(root) if is_inside else top
        for group in (folder, *folder.parents)[: len(folder.parts) - len(top.parts) + 1]:
            yield from _quota(group)


def _quota(group: Path) -> Iterator[float]:
    """Yield the cores that a control group's quota allows, if it has one."""
    for files in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):  # version 2, version 1
        words = [word for file in files for line in _lines(group / file) for word in line.split()]
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[1]):
            yield int(words[0]) / int(words[1])


def _matches(pattern: re.Pattern[str], path: str) -> Iterator[tuple[str, ...]]:
    yield from (match.groups() for line in _lines(path) if (match := pattern.fullmatch(line)))


def _lines(path: str | Path) -> list[str]:
    """Return the lines of a file of the system; none where there is no such file."""
    try:
        return (ROOT / path).read_text(errors="replace").splitlines()
    except OSError:
        return []
