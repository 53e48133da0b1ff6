import importlib.metadata
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deepsiam.data_prep.demo import distributions
from deepsiam.data_prep.demo.distributions import DISTRIBUTIONS
from deepsiam.data_prep.sources.docstrings.modules import SourceFile

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def required_by(lines: list[str]) -> set[str]:
    """The installed distributions that requirements name, directly or through others."""
    waiting = [Requirement(line) for line in lines]
    seen: set[tuple[str, str]] = set()  # distributions and their extras
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for line in importlib.metadata.requires(name) or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return {name for name, _ in seen}


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython",
    reason="the list is that of Linux and CPython 3.11",
)
def test_what_is_listed_is_installed_with_the_core_and_evaluate() -> None:
    import tomllib

    project = tomllib.loads(PYPROJECT.read_text())["project"]
    required = required_by([*project["dependencies"], *project["optional-dependencies"]["evaluate"]])
    assert set(DISTRIBUTIONS) <= required  # else the demo's text, and its numbers, would change


def test_what_is_not_installed_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    source = SourceFile("zoo", "zoo.fox", Path("fox.py"))
    monkeypatch.setattr(distributions, "installed", lambda _: ([source], ["apes", "owls"]))
    assert distributions.files() == [source]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("apes, owls")
    monkeypatch.setattr(
        distributions, "installed", lambda names: ([source], [n for n in names if n not in DISTRIBUTIONS])
    )
    distributions.files()
    assert capsys.readouterr().out == ""
