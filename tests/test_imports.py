"""Import rules: each room imports only rooms below it, no cycles, DeepSpeed in one room only, short files."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.toy import ROOT

PACKAGES = "data_prep|models|trainer"


def rooms_of_page() -> dict[str, list[set[str]]]:
    """The rooms of each package, from the top floor down, as CONTRIBUTING.md lists them.

    A room, or a file next to the rooms, imports only what a later row lists.
    """
    page = (ROOT / "CONTRIBUTING.md").read_text()
    packages: dict[str, list[set[str]]] = {}
    for package, table in re.findall(r"^\| floor \| `([\w/]+)/`.*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE):
        rows = re.findall(r"^\| (\d) \| (.*?) \|", table, re.MULTILINE)
        floors = packages[package] = [set() for _ in range(int(rows[-1][0]))]
        for number, rooms in rows:
            floors[int(number) - 1] |= {*re.findall(r"`(\w+)(?:/|\.py)`", rooms)}
        assert all(floors)
    return packages


ROOMS = rooms_of_page()
NOT_THE_PRODUCT = {"benchmarks", "tests"}
FORBIDDEN = {
    "data_prep": {"torch", "transformers", "deepspeed", "models", "trainer"} | NOT_THE_PRODUCT,
    "models": {"deepspeed", "webdataset", "data_prep", "trainer"} | NOT_THE_PRODUCT,
    "trainer": NOT_THE_PRODUCT,
    "benchmarks": set[str](),
}
FILES = sorted(file.relative_to(ROOT) for package in FORBIDDEN for file in (ROOT / package).rglob("*.py"))


def imported(file: Path, *, at_once: bool = False) -> set[str]:
    """The dotted names that a file imports, those of this project by their folders: `trainer.plan`."""
    return {name.removeprefix("deepsiam.") for name in written(file, at_once=at_once)}


@cache
def written(file: Path, *, at_once: bool = False) -> set[str]:
    """The names in a file's imports, also `a.b` of `from a import b`; `at_once`: not in functions or classes."""
    tree, names = ast.parse((ROOT / file).read_text()), set()
    if at_once:
        later = ast.FunctionDef | ast.ClassDef | ast.If  # an `if` of the top level is TYPE_CHECKING's
        tree.body = [node for node in tree.body if not isinstance(node, later)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def loaded(*modules: str) -> set[str]:
    """The names that are imported with modules of this project, by them or by what they import."""
    files = {dotted(file): file for file in FILES}
    names, left = set(modules), set(modules)
    while left:
        found = imported(files[left.pop()], at_once=True)
        left |= (found & files.keys()) - names
        names |= found
    return names


def roots(file: Path) -> set[str]:
    """The packages that a file imports."""
    return {name.split(".")[0] for name in imported(file)}


def room_of(module: str, package: str) -> str:
    """The room of a module in a package: the next part of its dotted name; empty for the package itself."""
    return module.removeprefix(package.replace("/", ".")).strip(".").split(".")[0]


def dotted(file: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(file.with_suffix("").parts)


def test_the_folders_are_imported_by_one_name() -> None:
    assert any(name.startswith("deepsiam.") for file in FILES for name in written(file))
    files = [*FILES, *(file.relative_to(ROOT) for file in (ROOT / "tests").rglob("*.py"))]
    other_name = re.compile(rf"^\s*(?:from|import) (?:{PACKAGES})\b", re.MULTILINE)
    assert other_name.search("def f():\n    from trainer.plan import main")
    assert not {str(file) for file in files if other_name.search((ROOT / file).read_text())}


def test_a_package_imports_only_what_it_may() -> None:
    assert not {str(file): bad for file in FILES if (bad := roots(file) & FORBIDDEN[file.parts[0]])}


def test_deepspeed_stays_in_one_room() -> None:
    users = {file for file in FILES if file.parts[0] != "benchmarks" and "deepspeed" in roots(file)}
    assert users
    assert not {str(file) for file in users if not file.is_relative_to("trainer/training/engine")}


def test_data_prep_writes_and_reads_tars_with_webdataset() -> None:
    assert any("webdataset.writer" in imported(file) for file in FILES if file.parts[0] == "data_prep")


def test_only_the_tests_of_benchmarks_import_them() -> None:
    named = [file for file in (ROOT / "tests").rglob("*.py") if "benchmarks" in file.read_text()]
    users = {file.relative_to(ROOT) for file in named if "benchmarks" in roots(file)}
    assert users
    assert not {str(file) for file in users if not file.is_relative_to("tests/benchmarks")}


def test_every_room_has_its_place() -> None:
    assert {package.partition("/")[0] for package in ROOMS} == FORBIDDEN.keys()
    for package, rows in ROOMS.items():
        there = {room_of(dotted(file), package) for file in FILES if file.is_relative_to(package)} - {"__init__"}
        assert there == set().union(*rows)


def test_imports_point_down() -> None:
    upwards = {}
    for package, rows in ROOMS.items():
        floor = {room: number for number, rooms in enumerate(rows) for room in rooms} | {"__init__": -1}
        for file in (file for file in FILES if file.is_relative_to(package)):
            own = room_of(dotted(file), package)
            inside = {name for name in imported(file) if name.startswith(package.replace("/", ".") + ".")}
            others = {room_of(name, package) for name in inside} - {own}
            if wrong := {room for room in others if floor[room] <= floor[own]}:
                upwards[str(file)] = wrong
    assert not upwards, "these files import rooms that do not stand below theirs in ROOMS"


def test_no_circle_of_imports() -> None:
    modules = {dotted(file): file for file in FILES}
    graph = {name: imported(file) & modules.keys() for name, file in modules.items()}
    assert any(graph.values())
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


def test_a_run_of_seed_loads_what_seed_needs() -> None:
    names = loaded("trainer.jobs.pretraining", "trainer.training.run.command", "models.pretraining.seed")
    lines = {dotted(file): len((ROOT / file).read_text().splitlines()) for file in FILES if dotted(file) in names}
    assert 10_000 < sum(lines.values()) <= 12_800
    assert {name for name in lines if name.startswith("trainer.interop.")} <= {"trainer.interop.model"}
    others = ("trainer.ranking", "data_prep.collections", "models.matching.siamese", "models.pretraining.poly")
    assert not [name for name in lines if name.startswith(others)]


def test_files_and_folders_are_small() -> None:
    lines = {str(file): len((ROOT / file).read_text().splitlines()) for file in FILES}
    assert not {file: number for file, number in lines.items() if number >= 400}
    assert lines["trainer/training/run/loop.py"] < 180
    assert not {folder: n for folder, n in Counter(str(file.parent) for file in FILES).items() if n > 20}


def is_overload(function: ast.FunctionDef) -> bool:
    """Whether a definition only declares types, before the one that is documented."""
    return any(ast.unparse(decorator) == "overload" for decorator in function.decorator_list)


def test_what_a_class_adds_has_a_docstring() -> None:
    """ruff asks overrides for docstrings too (D102), so the rule is here: only what a base documents may lack one."""
    methods: dict[str, dict[str, str | None]] = {}
    bases: dict[str, list[str]] = {}
    for file in (file for file in FILES if file.parts[0] != "benchmarks"):
        for node in ast.parse((ROOT / file).read_text()).body:
            if isinstance(node, ast.ClassDef):
                named = bases.setdefault(node.name, [])  # several classes may share a name
                named += [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
                for function in (f for f in node.body if isinstance(f, ast.FunctionDef) and not is_overload(f)):
                    methods.setdefault(node.name, {}).setdefault(function.name, ast.get_docstring(function))

    def documented(name: str, method: str, seen: tuple[str, ...] = ()) -> bool:
        above = [base for base in bases.get(name, []) if base not in seen]
        return bool(methods.get(name, {}).get(method)) or any(documented(base, method, (*seen, name)) for base in above)

    classes = [name for name in methods if not name.startswith("_")]
    public = [(name, method) for name in classes for method in methods[name] if not method.startswith("_")]
    assert len(public) > 500
    bare = [f"{name}.{method}" for name, method in public if not documented(name, method)]
    assert not bare
