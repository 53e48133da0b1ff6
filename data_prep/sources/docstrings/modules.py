"""English from the docstrings of Python files, which are parsed and never imported: files by folder or distribution."""

import ast
import gc
import importlib.metadata
import platform
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path, PurePath

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.common.workers import shared_memory_errors
from deepsiam.data_prep.sources.docstrings.prose import paragraphs
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.text.language import is_english
from deepsiam.data_prep.text.sentences import sentences

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
    missing_names = []
    for name in distributions:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            missing_names.append(name)
            continue
        paths = [(path, Path(str(path.locate()))) for path in distribution.files or () if path.suffix == ".py"]
        files += _importable(paths, None, f"{distribution.metadata['Name']} {distribution.version}")
    return _in_order(files), missing_names


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


MIN_WORDS = 8  # of a document
UNPARSED = "file cannot be parsed"
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Docstring:
    """The prose of one docstring; its first `opening` segments (0 or more) are the opening paragraph."""

    package: str
    document: Document
    opening: int

    @property
    def text(self) -> str:
        """All segments on one line."""
        return " ".join(self.document.segments)

    @property
    def summary(self) -> str:
        """The opening paragraph; "" if the docstring does not open with prose."""
        return " ".join(self.document.segments[: self.opening])

    @property
    def body(self) -> str:
        """The text after the opening paragraph."""
        return " ".join(self.document.segments[self.opening :])


def read_all(files: Sequence[SourceFile], workers: int) -> Iterator[tuple[list[Docstring], Counter[str]]]:
    """Yield what `read` returns for each file, in the order of `files` for any number of processes."""
    try:
        # Syntax trees are large and have no cycles: without the garbage collector, parsing is a third faster.
        with shared_memory_errors("another machine"):  # one worker is a process, too
            pool = ProcessPoolExecutor(workers, initializer=gc.disable)
        with pool:
            yield from track(pool.map(read, files, chunksize=32), "docstrings", "files", total=len(files))
    except BrokenProcessPool as error:
        raise InputError("docstrings: a process was killed (out of memory?); use fewer --workers") from error


def read(file: SourceFile) -> tuple[list[Docstring], Counter[str]]:
    """Read the docstrings of a file, as `docstrings_of` does."""
    try:
        content = file.path.read_bytes()
    except OSError:
        return [], Counter([UNPARSED])
    return docstrings_of(content, f"{file.package}:{file.module}", file.package)


def docstrings_of(content: bytes, where: str, package: str = "") -> tuple[list[Docstring], Counter[str]]:
    """Return a file's docstrings that are English prose, with the ids `where:NAME`; count those dropped by reason."""
    dropped: Counter[str] = Counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SyntaxWarning for invalid escape sequences
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        dropped[UNPARSED] += 1  # templates and files for other versions of Python
        return [], dropped
    docstrings: list[Docstring] = []
    names: Counter[str] = Counter()
    for name, docstring in _walk(tree, ""):
        names[name] += 1  # overloads and alternatives under `if` share a name
        number = f"#{names[name]}" if names[name] > 1 else ""
        opening, other_paragraphs = paragraphs(docstring)
        summary = sentences(opening) if opening else []
        segments = summary + [sentence for paragraph in other_paragraphs for sentence in sentences(paragraph)]
        text = " ".join(segments)
        if not segments:
            dropped["no prose"] += 1
        elif len(text.split()) < MIN_WORDS:
            dropped["too short"] += 1
        elif not is_english(text):
            dropped["not English"] += 1
        else:
            document = Document(f"{where}:{name or '<module>'}{number}", tuple(segments))
            docstrings.append(Docstring(package, document, len(summary)))
    return docstrings, dropped


def _walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield the qualified names and docstrings of a module, its classes and its functions, in source order."""
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
