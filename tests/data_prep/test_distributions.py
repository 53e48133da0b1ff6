"""What an extra alone has brought, among made distributions."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from data_prep.distributions import packages_of_extras_alone


def distribution(folder: Path, name: str, *requires: str, extras: tuple[str, ...] = ()) -> None:
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [f"Requires-Dist: {line}" for line in requires]
    (about / "METADATA").write_text("\n".join(lines) + "\n")
    (about / "top_level.txt").write_text(f"{name}_package\n")
    (folder / f"{name}_package").mkdir()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    return tmp_path


def test_what_another_requirement_brings_too_is_not_the_extras_alone(installed: Path) -> None:
    extras = ("dumps", "dev")
    needs = (
        "core",
        'zst; extra == "dumps"',
        'shared; extra == "dumps"',
        'mine[dumps]; extra == "dev"',
        'test; extra == "dev"',
    )
    distribution(installed, "mine", *needs, extras=extras)
    distribution(installed, "core", "shared>=1")
    distribution(installed, "zst", "below", 'elsewhere; sys_platform == "nowhere"')
    for name in ("shared", "below", "elsewhere", "test", "unrelated"):
        distribution(installed, name)
    assert packages_of_extras_alone("mine", ["dumps"]) == {"zst_package", "below_package"}
    assert packages_of_extras_alone("mine", ["dev"]) == {"test_package"}
    assert packages_of_extras_alone("mine", ["dumps", "dev"]) == {"zst_package", "below_package", "test_package"}


def test_of_what_is_not_installed_nothing_is_known(installed: Path) -> None:
    distribution(installed, "mine", 'gone; extra == "dumps"', extras=("dumps",))
    assert packages_of_extras_alone("mine", ["dumps"]) == set()
    assert packages_of_extras_alone("nobody", ["dumps"]) == set()
