"""The direction of imports: data_prep <- trainer -> models, no circle, DeepSpeed in one file."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.toy import ROOT

ROOMS = ("data_prep", "models", "trainer")
FORBIDDEN = {
    "data_prep": {"torch", "transformers", "deepspeed", "models", "trainer"},
    "models": {"deepspeed", "webdataset", "data_prep", "trainer"},
}
FILES = sorted(file for room in ROOMS for file in (ROOT / room).glob("*.py"))


def imported(file: Path) -> set[str]:
    """Every module a file imports, anywhere in it, as dotted names of modules of ours where they are."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_room_imports_only_what_it_may(file: Path) -> None:
    roots = {name.split(".")[0] for name in imported(file)}
    assert not roots & FORBIDDEN.get(file.parent.name, set())
    if file.name != "engine.py":
        assert "deepspeed" not in roots


def test_no_circle_of_imports() -> None:
    modules = {f"{file.parent.name}.{file.stem}": file for file in FILES}
    graph = {name: imported(file) & modules.keys() for name, file in modules.items()}
    assert any(graph.values())
    list(TopologicalSorter(graph).static_order())  # raises CycleError, naming the circle


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_file_is_one_idea(file: Path) -> None:
    assert len(file.read_text().splitlines()) < 400


def test_the_loop_stays_short() -> None:
    assert len((ROOT / "trainer" / "loop.py").read_text().splitlines()) < 150
