import os
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.docstrings import modules
from deepsiam.data_prep.sources.docstrings.installed import SourceFile, find
from deepsiam.data_prep.sources.docstrings.modules import read

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
        "broken.py": "def (:",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


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
