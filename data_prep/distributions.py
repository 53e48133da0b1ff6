"""Which installed packages a distribution's extra has brought."""

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

Wanted = tuple[str, str]  # a distribution, and one of its extras or ""


def packages_of_extra_alone(distribution: str, extra: str) -> set[str]:
    """The top-level packages that only `extra` of a distribution requires; none where that is not installed."""
    try:
        extras = importlib.metadata.metadata(distribution).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    without = _required([(distribution, name) for name in ("", *extras) if name != extra], (distribution, extra))
    alone = _required([(distribution, extra)], None) - without
    packages = importlib.metadata.packages_distributions()
    return {package for package, owners in packages.items() if {canonicalize_name(owner) for owner in owners} <= alone}


def _required(wanted: Iterable[Wanted], leaving_out: Wanted | None) -> set[str]:
    """The installed distributions that some require, with their own, as far as they can be reached."""
    waiting, seen = list(wanted), set[Wanted]()
    while waiting:
        item = waiting.pop()
        if item in seen or item == leaving_out:
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
