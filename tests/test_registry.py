"""One's own code: what modules register is found by name; imports of them, and what is wrong with these."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import deepsiam
from deepsiam import registry
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.data_prep.common.errors import FailedImportError, InputError, exit_on_input_error
from deepsiam.data_prep.sources.registry import SOURCES
from tests.own_code import own_code, registry_of, write_entry_point, write_module


def registers(kind: str, name: str, value: str = "object") -> str:
    """A module that registers something."""
    return f"import deepsiam\ndeepsiam.register({kind!r}, {name!r}, {value})\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with own_code(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("kind", registry.REGISTRIES)
def test_ours_are_where_their_places_say_and_what_a_module_registers_is_found(kind: str, folder: Path) -> None:
    found = registry_of(kind)
    assert found.kind == kind
    assert found.ours
    assert all(found[name] is not None for name in found.ours)
    assert "mine" not in found
    write_module(folder, "my_module", registers(kind, "mine"))
    registry.import_named("my_module", "here")
    assert "mine" in found
    assert found["mine"] is object
    assert [*found] == [*found.ours, "mine"]


def test_a_place_is_imported_when_it_is_named(folder: Path) -> None:
    write_module(folder, "my_package.later", "VALUE = 3\n")
    write_module(folder, "my_package.names", registers("metric", "mine", "'my_package.later.VALUE'"))
    registry.import_named("my_package.names", "here")
    assert "mine" in registry_of("metric")
    assert "my_package.later" not in sys.modules
    assert registry_of("metric")["mine"] == 3


def test_an_entry_point_is_loaded_for_its_name_alone(folder: Path) -> None:
    for name in ("mine", "other"):
        write_module(folder, f"my_{name}", registers("format", name))
        write_entry_point(folder, f"format.{name}", f"my_{name}")
    write_module(folder, "my_module", "")
    write_entry_point(folder, "source.wrong", "my_module")
    assert "beir" in FORMATS
    assert [*FORMATS] == [*FORMATS.ours, "mine", "other"]
    assert "my_mine" not in sys.modules
    assert "mine" not in SOURCES
    assert FORMATS["mine"] is object  # type: ignore[comparison-overlap]
    assert "my_other" not in sys.modules
    assert FORMATS.homes["mine"] == "my_mine"
    with pytest.raises(InputError, match="^the entry point source.wrong: my_module registers no source 'wrong'$"):
        SOURCES.get("wrong")


def test_a_name_that_is_known_looks_at_no_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_installed", None)
    monkeypatch.setenv(registry.VARIABLE, "no_such_module")
    assert "jsonl" in SOURCES
    assert SOURCES["jsonl"] is SOURCES.get("jsonl")


def test_the_variable_names_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "other"):
        write_module(folder, f"my_{name}", registers("source", name))
    monkeypatch.setenv(registry.VARIABLE, "my_mine, my_other")
    assert "other" in SOURCES
    assert {"mine", "other"} < {*SOURCES}


def test_a_name_that_is_registered_again(folder: Path) -> None:
    for module, name in (("my_one", "mine"), ("my_other", "mine"), ("my_third", "jsonl")):
        write_module(folder, module, registers("source", name))
    registry.import_named("my_one", "here")
    with pytest.raises(InputError, match="^my_other: registers the source 'mine', as my_one does: give it another"):
        registry.import_named("my_other", "here")
    with pytest.raises(InputError, match="^my_third: registers the source 'jsonl', as deepsiam does: give it another"):
        registry.import_named("my_third", "here")
    assert SOURCES["jsonl"] is not object  # type: ignore[comparison-overlap]
    deepsiam.register("source", "again", 1)
    deepsiam.register("source", "again", 2)  # as a notebook's cell that is run again
    assert SOURCES["again"] == 2  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("module", "text", "message"),
    [
        ("missing", None, "^here: Python finds no module missing: install its package, or add its folder to PYTHON"),
        ("a.missing", None, "^here: Python finds no module a.missing: install"),
        ("kind", registers("metod", "a"), "'metod' is no kind; did you mean method.; there"),
        ("broken", "import json\njson.loads('?')\n", "^here: importing broken failed: JSONDecodeError: Expecting"),
        ("absent", "import no_such_package\n", "^here: importing absent failed: ModuleNotFoundError: No module named"),
        ("ending", "raise SystemExit(3)\n", "^here: importing ending failed: SystemExit: 3$"),
    ],
)
def test_modules_that_cannot_be_imported(module: str, text: str | None, message: str, folder: Path) -> None:
    if text is not None:
        write_module(folder, module, text)
    with pytest.raises(InputError, match=message):
        registry.import_named(module, "here")


def test_a_failed_import_shows_the_user_s_traceback_then_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_module(folder, "broken", "def fail():\n    raise KeyError('oh')\nfail()\n")
    with pytest.raises(SystemExit) as end, exit_on_input_error("command"):
        registry.import_named("broken", "here")
    first, second, *_, last = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert first == "Traceback (most recent call last):"
    assert last == "command: here: importing broken failed: KeyError: 'oh'"
    assert second.startswith(f'  File "{file}", line 3')
    with pytest.raises(FailedImportError) as failed:  # of the Python interface
        registry.import_named("broken", "here")
    assert isinstance(failed.value.__cause__, KeyError)


def test_the_hash_is_of_a_module_s_file_or_of_all_of_a_package(folder: Path) -> None:
    write_module(folder, "my_package.one", "")
    write_module(folder, "my_package.two", "X = 1\n")
    for name in ("my_package", "my_package.two"):
        registry.import_named(name, "here")
    alone = hashlib.sha256(b"X = 1\n").hexdigest()
    assert registry.sha256_of("my_package") == registry.sha256_of("my_package.two") == alone  # the others are empty
    write_module(folder, "my_package.one", "Y = 2\n")
    assert registry.sha256_of("my_package") == hashlib.sha256(b"Y = 2\nX = 1\n").hexdigest()
    assert registry.sha256_of("my_package.two") == alone
