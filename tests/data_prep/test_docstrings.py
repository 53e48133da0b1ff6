import importlib.metadata
import os
from pathlib import Path

import pytest

from data_prep import docstrings
from data_prep.docstrings import SourceFile, find, read
from data_prep.errors import InputError

SOURCE = '''"""The module that is about foxes and dogs."""
raise SystemExit("never imported")

class Fox:
    """A fox that is able to jump over dogs.

    It is quick and brown. It is not lazy at all.
    """

    def jump(self):
        "Jumps over the dog that is the laziest of all."

        def inner():
            """Does what is to be done in the inner of it."""

    if True:
        async def jump(self):
            """Jumps again over the dog that is the laziest of all."""
    else:
        def short(self):
            """Jumps over the dog."""

def code():
    """>>> x = 1"""

def german():
    """Berechnet den Mittelwert aller Werte und gibt ihn als Zahl zurück, aber the."""

def plain():
    return 1
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "zoo/__init__.py": '"""All of the animals that there are in it."""',
        "zoo/fox.py": SOURCE,
        "zoo/tests/test_fox.py": SOURCE,
        "zoo/test/__init__.py": SOURCE,
        "zoo/not-a-module/x.py": SOURCE,
        "zoo/data.txt": SOURCE,
        "apes.py": SOURCE,
        "broken.py": "def (:",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_importable_files_are_found_in_order_without_tests(tree: Path) -> None:
    assert [(file.package, file.module) for file in find(tree)] == [
        ("apes", "apes"),
        ("broken", "broken"),
        ("zoo", "zoo"),
        ("zoo", "zoo.fox"),
    ]
    assert {file.package for file in find(tree, "python")} == {"python"}
    with pytest.raises(InputError, match="nowhere: no such folder"):
        find(tree / "nowhere")


def test_docstrings_are_read_with_their_names_and_drops_are_counted(tree: Path) -> None:
    found, dropped = read(SourceFile("zoo", "zoo.fox", tree / "zoo" / "fox.py"))
    assert [docstring.document.id for docstring in found] == [
        "zoo:zoo.fox:<module>",
        "zoo:zoo.fox:Fox",
        "zoo:zoo.fox:Fox.jump",
        "zoo:zoo.fox:Fox.jump.inner",
        "zoo:zoo.fox:Fox.jump#2",
    ]
    assert dropped == {"no prose": 1, "too short": 1, "not English": 1}
    fox = found[1]
    assert fox.document.segments == (
        "A fox that is able to jump over dogs.",
        "It is quick and brown.",
        "It is not lazy at all.",
    )
    assert fox.summary == "A fox that is able to jump over dogs."
    assert fox.body == "It is quick and brown. It is not lazy at all."
    assert fox.text == f"{fox.summary} {fox.body}"


def test_a_file_that_cannot_be_parsed_is_counted(tree: Path) -> None:
    assert read(SourceFile("broken", "broken", tree / "broken.py")) == ([], {"file cannot be parsed": 1})
    (tree / "null.py").write_bytes(b"x = 1\x00")
    assert read(SourceFile("null", "null", tree / "null.py"))[1] == {"file cannot be parsed": 1}


def test_the_number_of_workers_changes_nothing(tree: Path) -> None:
    assert list(docstrings.read_all(find(tree), 1)) == list(docstrings.read_all(find(tree), 3))


def test_the_installed_packages_are_found_with_their_versions() -> None:
    files = docstrings.installed()
    modules = {file.module: file.package for file in files}
    assert modules["json.decoder"] == docstrings.STANDARD_LIBRARY
    assert modules["numpy.linalg"] == "numpy"
    assert not any("site-packages" in module for module in modules)
    known = docstrings.versions(["numpy", "python", "no_such_package"])
    assert known["numpy"] == f"numpy {importlib.metadata.version('numpy')}"
    assert set(known) == {"numpy", "python"}


def test_a_killed_worker_is_one_clear_line(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "read", exit_at_once)
    with pytest.raises(InputError, match="a process was killed .*use fewer --workers"):
        list(docstrings.read_all(find(tree), 1))


def exit_at_once(file: SourceFile) -> None:
    os._exit(1)
