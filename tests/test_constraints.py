"""constraints/lowest.txt has the lower bounds of pyproject.toml."""

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.toy import ROOT


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["evaluate"]]
    lines = (ROOT / "constraints" / "lowest.txt").read_text().splitlines()
    lowest = {(pin := Requirement(line)).name: pin.specifier for line in lines if not line.startswith("#")}
    assert lowest.keys() == {canonicalize_name(requirement.name) for requirement in asked}
    for requirement in asked:
        (pin,) = lowest[canonicalize_name(requirement.name)]
        (bound,) = (part.version for part in requirement.specifier if part.operator == ">=")
        assert requirement.specifier.contains(pin.version)
        assert Requirement(f"x=={bound}").specifier.contains(pin.version), requirement
