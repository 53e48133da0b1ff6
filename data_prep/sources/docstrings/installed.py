"""The Python files of the standard library and of installed distributions."""

import importlib.metadata
import platform
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from deepsiam.data_prep.common.errors import InputError

STANDARD_LIBRARY = "python"  # its package name here; its modules share texts, so they are held out together
# Docstrings of tests repeat the name of the test; parsing these files would take a fifth of the time.
TEST_FOLDERS = frozenset(["test", "tests", "idle_test"])


@dataclass(frozen=True)
class SourceFile:
    """A Python file: its top-level package, its dotted module name, and the release it comes from, if known."""

    package: str
    module: str
    path: Path
    release: str | None = None  # "numpy 2.4.6"


def installed(distributions: Iterable[str]) -> tuple[list[SourceFile], list[str]]:
    """Return the files of the standard library and of `distributions`, in order, and the names of those not installed.

    A distribution's files are those that its record lists: other distributions may add files to the same package.
    """
    library = Path(sysconfig.get_path("stdlib"))
    files = find(library, STANDARD_LIBRARY, f"{platform.python_implementation()} {platform.python_version()}")
    missing = []
    for name in distributions:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        paths = [(path, Path(str(path.locate()))) for path in distribution.files or () if path.suffix == ".py"]
        files += _importable(paths, None, f"{distribution.metadata['Name']} {distribution.version}")
    return _in_order(files), missing


def find(root: Path, package: str | None = None, release: str | None = None) -> list[SourceFile]:
    """Return the importable Python files under `root` outside test folders; raise InputError where it is not a folder.

    They belong to `package`, or each to the top-level package or module that contains it.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder of Python packages")
    paths = [(path.relative_to(root), path) for path in root.rglob("*.py")]
    return _in_order(_importable(paths, package, release))


def _importable(paths: Iterable[tuple[PurePath, Path]], package: str | None, release: str | None) -> list[SourceFile]:
    """Return the importable files outside test folders; `paths` are relative paths, each with the path to open."""
    files = []
    for relative, path in paths:
        parts = relative.with_suffix("").parts
        if not all(part.isidentifier() for part in parts) or not TEST_FOLDERS.isdisjoint(parts):
            continue  # site-packages, a folder of the standard library, is not an identifier either
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        files.append(SourceFile(package or parts[0], module, path, release))
    return files


def _in_order(files: Iterable[SourceFile]) -> list[SourceFile]:
    return sorted(files, key=lambda file: (file.package, file.module, file.path))
