"""English from the docstrings of the Python packages that are installed: parsed, never imported."""

import ast
import gc
import importlib.metadata
import platform
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from data_prep.clean import is_english, sentences
from data_prep.distributions import packages_of_extras_alone
from data_prep.document import Document
from data_prep.errors import InputError
from data_prep.progress import track
from data_prep.prose import paragraphs

STANDARD_LIBRARY = "python"  # its package name here; its modules share texts, so they are held out together
# Docstrings of tests repeat the name of the test; parsing these files would take a fifth of the time.
TEST_FOLDERS = frozenset(["test", "tests", "idle_test"])
UNREAD = ("dumps", "parallel")  # extras
MIN_WORDS = 8  # of a document
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class SourceFile:
    """A Python file: the top-level package it belongs to, and its dotted module name."""

    package: str
    module: str
    path: Path


@dataclass(frozen=True)
class Docstring:
    """The prose of one docstring; `opening` of its first segments are the opening paragraph, maybe none."""

    package: str
    document: Document
    opening: int

    @property
    def text(self) -> str:
        """All of it, on one line."""
        return " ".join(self.document.segments)

    @property
    def summary(self) -> str:
        """The opening paragraph; "" where the docstring opens with something that is not prose."""
        return " ".join(self.document.segments[: self.opening])

    @property
    def body(self) -> str:
        """What follows the opening paragraph."""
        return " ".join(self.document.segments[self.opening :])


def installed() -> list[SourceFile]:
    """The Python files of the standard library and of the running interpreter's site-packages, in order.

    Those that UNREAD brought are left out, so that the demo's text is the same with them and without.
    """
    library = Path(sysconfig.get_path("stdlib"))
    files = find(library, STANDARD_LIBRARY)
    for root in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        files += find(Path(root))
    unread = packages_of_extras_alone("deepsiam", UNREAD)
    return [file for file in files if file.package not in unread]


def find(root: Path, package: str | None = None) -> list[SourceFile]:
    """The importable Python files under `root` outside test folders; InputError where it is no folder.

    They belong to `package`, or each to the top-level package or module that it lies in.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder of Python packages")
    files = []
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if not all(part.isidentifier() for part in parts) or not TEST_FOLDERS.isdisjoint(parts):
            continue  # site-packages under the standard library is no identifier either
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        files.append(SourceFile(package or parts[0], module, path))
    return sorted(files, key=lambda file: (file.package, file.module, file.path))


def read_all(files: Sequence[SourceFile], workers: int) -> Iterator[tuple[list[Docstring], Counter[str]]]:
    """What `read` returns for each file, in the order of `files` however many processes there are.

    Raises:
        InputError: a process was killed.
    """
    try:
        # Syntax trees are large and free of cycles: without the garbage collector they parse a third faster.
        with ProcessPoolExecutor(workers, initializer=gc.disable) as pool:
            yield from track(pool.map(read, files, chunksize=32), "docstrings", "files", total=len(files))
    except BrokenProcessPool as error:
        raise InputError("docstrings: a process was killed (out of memory?); use fewer --workers") from error


def read(file: SourceFile) -> tuple[list[Docstring], Counter[str]]:
    """The docstrings of a file that are English prose, and how many were dropped for which reason."""
    dropped: Counter[str] = Counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SyntaxWarning for other people's escape sequences
            tree = ast.parse(file.path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        dropped["file cannot be parsed"] += 1  # templates and files for other versions of Python
        return [], dropped
    found: list[Docstring] = []
    names: Counter[str] = Counter()
    for name, docstring in _walk(tree, ""):
        names[name] += 1  # overloads and alternatives under `if` share a name
        number = f"#{names[name]}" if names[name] > 1 else ""
        opening, rest = paragraphs(docstring)
        first = sentences(opening) if opening else []
        segments = first + [sentence for paragraph in rest for sentence in sentences(paragraph)]
        text = " ".join(segments)
        if not segments:
            dropped["no prose"] += 1
        elif len(text.split()) < MIN_WORDS:
            dropped["too short"] += 1
        elif not is_english(text):
            dropped["not English"] += 1
        else:
            document = Document(f"{file.package}:{file.module}:{name or '<module>'}{number}", tuple(segments))
            found.append(Docstring(file.package, document, len(first)))
    return found, dropped


def _walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """The qualified names and docstrings of a module, its classes and its functions, in source order."""
    if isinstance(node, (ast.Module, *DEFINITIONS)):
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield name, docstring
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            if isinstance(child, DEFINITIONS):
                yield from _walk(child, f"{name}.{child.name}" if name else child.name)
            else:
                yield from _walk(child, name)


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The version of each package, where its distribution is known, as `distribution version`."""
    distributions = importlib.metadata.packages_distributions()
    known = {STANDARD_LIBRARY: f"{platform.python_implementation()} {platform.python_version()}"}
    for package in packages:
        if package in distributions:
            name = sorted(distributions[package])[0]
            known[package] = f"{name} {importlib.metadata.version(name)}"
    return {package: known[package] for package in packages if package in known}
