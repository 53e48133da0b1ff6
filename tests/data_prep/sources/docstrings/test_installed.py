import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.docstrings import installed as module
from deepsiam.data_prep.sources.docstrings.installed import STANDARD_LIBRARY, find, installed


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "zoo/__init__.py",
        "zoo/fox.py",
        "zoo/tests/test_fox.py",
        "zoo/test/__init__.py",
        "zoo/not-a-module/x.py",
        "zoo/data.txt",
        "apes.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_find_returns_importable_files_in_order_without_tests(tree: Path) -> None:
    assert [(file.package, file.module) for file in find(tree)] == [
        ("apes", "apes"),
        ("zoo", "zoo"),
        ("zoo", "zoo.fox"),
    ]
    assert {(file.package, file.release) for file in find(tree, "python", "CPython 3")} == {("python", "CPython 3")}
    with pytest.raises(InputError, match="nowhere: no such folder"):
        find(tree / "nowhere")


def distribution(folder: Path, name: str, *files: str) -> None:
    """Install a made-up distribution, version 1.0, with a record of its files."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")


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


def test_the_standard_library_and_numpy_are_read_with_their_releases() -> None:
    files, missing = installed(["numpy"])
    assert missing == []
    modules = {file.module: file for file in files}
    assert modules["json.decoder"].package == STANDARD_LIBRARY
    assert modules["numpy.linalg"].release == f"numpy {importlib.metadata.version('numpy')}"
    assert modules["numpy.linalg"].path.is_file()
    assert {file.package for file in files} == {"numpy", STANDARD_LIBRARY}
