"""Which installed packages some extras of a distribution have brought."""

import importlib.metadata
from collections.abc import Collection, Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

Wanted = tuple[str, str]  # a distribution, and one of its extras or ""


def packages_of_extras_alone(distribution: str, extras: Collection[str]) -> set[str]:
    """The top-level packages that only `extras` of a distribution require; none where that is not installed."""
    try:
        others = {"", *(importlib.metadata.metadata(distribution).get_all("Provides-Extra") or [])} - {*extras}
    except importlib.metadata.PackageNotFoundError:
        return set()
    these = {(distribution, extra) for extra in extras}
    without = _required([(distribution, other) for other in others], leaving_out=these)
    alone = _required(these, leaving_out=set()) - without
    packages = importlib.metadata.packages_distributions()
    return {package for package, owners in packages.items() if {canonicalize_name(owner) for owner in owners} <= alone}


def _required(wanted: Iterable[Wanted], leaving_out: Collection[Wanted]) -> set[str]:
    """The installed distributions that some require, with their own, as far as they can be reached."""
    waiting, seen = list(wanted), set[Wanted]()
    while waiting:
        item = waiting.pop()
        if item in seen or item in leaving_out:
            continue
        seen.add(item)
        name, extra = item
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                found = canonicalize_name(requirement.name)
                waiting += [(found, ""), *((found, own) for own in requirement.extras)]
    return {name for name, _ in seen}
