"""Docstrings of Python files as documents, and as pairs of name, summary and body."""

import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.docstrings import modules, python
from deepsiam.data_prep.sources.docstrings import modules as module
from deepsiam.data_prep.sources.docstrings.modules import STANDARD_LIBRARY, SourceFile, find, installed, read
from deepsiam.data_prep.sources.docstrings.python import PYTHON
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from tests.data_prep.collections.raw_formats import write_files

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
    whole = '"""All of the animals that there are in it."""'
    return write_files(tmp_path, {"zoo/__init__.py": whole, "zoo/fox.py": SOURCE, "broken.py": "def (:"})


def test_docstrings_are_read_with_their_names_and_drops_are_counted(tree: Path) -> None:
    docstrings, dropped = read(SourceFile("zoo", "zoo.fox", tree / "zoo" / "fox.py"))
    assert [docstring.document.id for docstring in docstrings] == [
        "zoo:zoo.fox:<module>",
        "zoo:zoo.fox:Fox",
        "zoo:zoo.fox:Fox.jump",
        "zoo:zoo.fox:Fox.jump.inner",
        "zoo:zoo.fox:Fox.jump#2",
    ]
    assert dropped == {"no prose": 1, "too short": 1, "not English": 1}
    fox = docstrings[1]
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
    assert list(modules.read_all(find(tree), 1)) == list(modules.read_all(find(tree), 3))


def test_a_killed_worker_is_one_clear_line(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "read", exit_at_once)
    with pytest.raises(InputError, match="a process was killed .*use fewer --workers"):
        list(modules.read_all(find(tree), 1))


def exit_at_once(file: SourceFile) -> None:
    os._exit(1)


@pytest.fixture
def installed_tree(tmp_path: Path) -> Path:
    tests = "zoo/tests/test_fox.py", "zoo/test/__init__.py"
    names = "zoo/__init__.py", "zoo/fox.py", *tests, "zoo/not-a-module/x.py", "zoo/data.txt", "apes.py"
    return write_files(tmp_path, dict.fromkeys(names, ""))


def test_find_returns_importable_files_in_order_without_tests(installed_tree: Path) -> None:
    assert [(file.package, file.module) for file in find(installed_tree)] == [
        ("apes", "apes"),
        ("zoo", "zoo"),
        ("zoo", "zoo.fox"),
    ]
    assert {(file.package, file.release) for file in find(installed_tree, "python", "CPython 3")} == {
        ("python", "CPython 3")
    }
    with pytest.raises(InputError, match="nowhere: no such folder"):
        find(installed_tree / "nowhere")


def distribution(folder: Path, name: str, *files: str) -> None:
    """Install a made-up distribution, version 1.0, with a record of its files."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    record = {f"{name}-1.0.dist-info/RECORD": "".join(f"{file},,\n" for file in files)}
    write_files(folder, {f"{name}-1.0.dist-info/METADATA": metadata, **record, **dict.fromkeys(files, "")})


def test_only_files_of_the_listed_distributions_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, library = tmp_path / "site-packages", tmp_path / "lib"
    for folder in (site, library):
        folder.mkdir()
    (library / "os.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(module.sysconfig, "get_path", lambda _: str(library))
    importlib.invalidate_caches()
    distribution(site, "Zoo_Core", "zoo/__init__.py", "zoo/fox.py", "zoo/tests/test_fox.py", "zoo.pth", "apes.py")
    distribution(site, "tool", "tool/__init__.py", "zoo/plugin.py")
    (site / "stray.py").write_text("")
    files, missing = installed(["zoo-core", "gone"])
    assert [(file.package, file.module, file.path) for file in files] == [
        ("apes", "apes", site / "apes.py"),
        (STANDARD_LIBRARY, "os", library / "os.py"),
        ("zoo", "zoo", site / "zoo" / "__init__.py"),
        ("zoo", "zoo.fox", site / "zoo" / "fox.py"),
    ]
    assert {file.release for file in files if file.package != STANDARD_LIBRARY} == {"Zoo_Core 1.0"}
    assert missing == ["gone"]


SUMMARY, BODY = "Count the foxes that are in the garden.", "Those that have jumped over the dog are counted as well."
CODE = f'''
class FoxCounter:
    def count_all(self):
        """{SUMMARY}

        {BODY}
        """
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return write_files(tmp_path, {"zoo/fox.py": CODE, "zoo/tests/test_fox.py": CODE})


def test_a_docstring_is_a_document_of_its_file(package: Path) -> None:
    name = "python/zoo/fox.py"
    assert list(PYTHON.documents([package])) == [
        Document(f"{name}:FoxCounter.count_all", (SUMMARY, BODY), group=name),
        Dropped("test"),
    ]


def test_its_name_has_the_summary_and_the_summary_the_body(package: Path) -> None:
    pairs = [item for item in PYTHON.documents([package], pairs=True) if isinstance(item, Document)]
    assert [pair.segments for pair in pairs] == [("zoo fox counter count all", SUMMARY), (SUMMARY, BODY)]
    assert {pair.group for pair in pairs} == {"python/zoo/fox.py"}
    (package / "zoo" / "http2.py").write_text(f'"""{SUMMARY} {BODY}"""')
    pairs = [item for item in PYTHON.documents([package / "zoo"], pairs=True) if isinstance(item, Document)]
    assert pairs[-1].segments == ("http 2", f"{SUMMARY} {BODY}")


def test_files_of_another_python_and_long_ones_are_left_out(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = package / "old.py"
    path.write_text("print 'fox'")
    assert list(PYTHON.documents([path])) == [Dropped("file cannot be parsed")]
    monkeypatch.setattr(python, "MAX_BYTES", 10)
    assert list(PYTHON.documents([path])) == [Bad(str(path), "the file", "more than 10 bytes")]
