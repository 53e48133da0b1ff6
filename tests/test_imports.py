"""Import rules: each room imports only rooms below it, no cycles, DeepSpeed in one room only, short files."""

import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.toy import ROOT

# from the top down: a room, or a file next to the rooms, imports only what a later row lists
ROOMS = {
    "data_prep": [
        {"__main__"},
        {"arguments"},
        {"prepare", "demo"},
        {"collections"},
        {"shards"},
        {"tokenizers", "sources"},
        {"text"},
        {"common"},
    ],
    "models": [
        {"registry"},
        {"pretraining"},
        {"matching", "adapters", "recomputing"},
        {"config", "compiling", "freeze"},
        {"build_trunk"},
        {"trunk"},
        {"encode", "layers", "batching", "vectors"},
        {"attention", "causality"},
        {"arrays", "interface", "sizes"},
    ],
    "trainer": [
        {"doctor"},
        {
            "pretrain",
            "finetune",
            "evaluate",
            "mine",
            "index",
            "search",
            "export",
            "report",
            "analyse",
            "trace",
            "supervise",
            "plan",
        },
        {"analysis"},
        {"ranking", "cluster"},
        {"training"},
    ],
    "trainer/ranking": [
        {"while_training", "miners", "export"},
        {"evaluation"},
        {"indexes", "expansion", "consistency"},
        {"rankers", "mining"},
        {"ranker", "published"},
        {"retrieval", "options", "deadline"},
    ],
    "trainer/cluster": [{"planning"}, {"hosts"}],
    "benchmarks": [{"demo", "claims", "step", "matching", "retrieval", "scaling", "data", "costs"}, {"common"}],
    "trainer/training": [{"run"}, {"checkpoints"}, {"published", "data", "engine"}, {"recipe"}, {"errors"}],
}
NOT_THE_PRODUCT = {"benchmarks", "tests"}
FORBIDDEN = {
    "data_prep": {"torch", "transformers", "deepspeed", "models", "trainer"} | NOT_THE_PRODUCT,
    "models": {"deepspeed", "webdataset", "data_prep", "trainer"} | NOT_THE_PRODUCT,
    "trainer": NOT_THE_PRODUCT,
    "benchmarks": set[str](),
}
FILES = sorted(file.relative_to(ROOT) for package in FORBIDDEN for file in (ROOT / package).rglob("*.py"))
NAMES = [str(file) for file in FILES]


def imported(file: Path, *, at_once: bool = False) -> set[str]:
    """The dotted names that a file imports, also `a.b` of `from a import b`; `at_once`: not in functions or classes."""
    tree, names = ast.parse((ROOT / file).read_text()), set()
    if at_once:
        tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room_of(module: str, package: str) -> str:
    """The room of a module in a package: the next part of its dotted name; empty for the package itself."""
    return module.removeprefix(package.replace("/", ".")).strip(".").split(".")[0]


def dotted(file: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(file.with_suffix("").parts)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_package_imports_only_what_it_may(file: Path) -> None:
    roots = {name.split(".")[0] for name in imported(file)}
    assert not roots & FORBIDDEN[file.parts[0]]
    if file.parts[0] != "benchmarks" and file.parts[:3] != ("trainer", "training", "engine"):
        assert "deepspeed" not in roots


def test_data_prep_writes_and_reads_tars_with_webdataset() -> None:
    assert any("webdataset.writer" in imported(file) for file in FILES if file.parts[0] == "data_prep")


def test_only_the_tests_of_benchmarks_import_them() -> None:
    tests = {file.relative_to(ROOT) for file in (ROOT / "tests").rglob("*.py")}
    others = {file for file in tests if file.parts[:2] != ("tests", "benchmarks")}
    assert others < tests
    users = {str(file) for file in others if any(name.split(".")[0] == "benchmarks" for name in imported(file))}
    assert not users


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_has_its_place(package: str) -> None:
    there = {room_of(dotted(file), package) for file in FILES if file.is_relative_to(package)} - {"__init__"}
    assert there == set().union(*ROOMS[package])


@pytest.mark.parametrize(
    ("package", "file"),
    [(package, file) for package in ROOMS for file in FILES if file.is_relative_to(package)],
    ids=str,
)
def test_imports_point_down(package: str, file: Path) -> None:
    own = room_of(dotted(file), package)
    floor = {room: number for number, rooms in enumerate(ROOMS[package]) for room in rooms} | {"__init__": -1}
    inside = {name for name in imported(file) if name.startswith(package.replace("/", ".") + ".")}
    others = {room_of(name, package) for name in inside} - {own}
    upwards = {room for room in others if floor[room] <= floor[own]}
    assert not upwards, f"{file} imports {upwards}, which do not stand below it in ROOMS"


def test_no_circle_of_imports() -> None:
    modules = {dotted(file): file for file in FILES}
    graph = {name: imported(file) & modules.keys() for name, file in modules.items()}
    assert any(graph.values())
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_file_is_one_idea(file: Path) -> None:
    assert len((ROOT / file).read_text().splitlines()) < 400


def test_no_folder_has_more_than_20_files() -> None:
    long = {folder: number for folder, number in Counter(str(file.parent) for file in FILES).items() if number > 20}
    assert not long


def test_the_loop_stays_short() -> None:
    assert len((ROOT / "trainer/training/run/loop.py").read_text().splitlines()) < 180
