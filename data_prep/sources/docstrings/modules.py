"""English from the docstrings of Python files, which are parsed and never imported."""

import ast
import gc
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.progress import track
from deepsiam.data_prep.common.workers import shared_memory_errors
from deepsiam.data_prep.sources.docstrings.installed import SourceFile
from deepsiam.data_prep.sources.docstrings.prose import paragraphs
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.text.language import is_english
from deepsiam.data_prep.text.sentences import sentences

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
    """Yield what `read` returns for each file, in the order of `files` for any number of processes.

    Raises:
        InputError: a process was killed.
    """
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
            document = Document(f"{where}:{name or '<module>'}{number}", tuple(segments))
            docstrings.append(Docstring(package, document, len(first)))
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
