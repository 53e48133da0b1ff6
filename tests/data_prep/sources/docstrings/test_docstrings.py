"""Docstrings of Python files: their prose, as documents, and as pairs of name, summary and body."""

import importlib
import importlib.metadata
import os
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.docstrings import modules, python
from deepsiam.data_prep.sources.docstrings.modules import STANDARD_LIBRARY, SourceFile, find, installed, read
from deepsiam.data_prep.sources.docstrings.prose import paragraphs
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
    names = ("<module>", "Fox", "Fox.jump", "Fox.jump.inner", "Fox.jump#2")
    assert [docstring.document.id for docstring in docstrings] == [f"zoo:zoo.fox:{name}" for name in names]
    assert dropped == {"no prose": 1, "too short": 1, "not English": 1}
    fox, summary = docstrings[1], "A fox that is able to jump over dogs."
    assert fox.document.segments == (summary, "It is quick and brown.", "It is not lazy at all.")
    assert (fox.summary, fox.body) == (summary, "It is quick and brown. It is not lazy at all.")
    assert fox.text == f"{fox.summary} {fox.body}"
    assert list(modules.read_all(find(tree), 3)) == [read(file) for file in find(tree)]


def test_a_killed_worker_is_one_clear_line(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "read", exit_at_once)
    with pytest.raises(InputError, match="a process was killed .*use fewer --workers"):
        list(modules.read_all(find(tree), 1))


def exit_at_once(file: SourceFile) -> None:
    os._exit(1)


def test_find_returns_importable_files_in_order_without_tests(tmp_path: Path) -> None:
    tests = "zoo/tests/test_fox.py", "zoo/test/__init__.py"
    names = "zoo/__init__.py", "zoo/fox.py", *tests, "zoo/not-a-module/x.py", "zoo/data.txt", "apes.py"
    write_files(tmp_path, dict.fromkeys(names, ""))
    found = [(file.package, file.module) for file in find(tmp_path)]
    assert found == [("apes", "apes"), ("zoo", "zoo"), ("zoo", "zoo.fox")]
    own = {(file.package, file.release) for file in find(tmp_path, "python", "CPython 3")}
    assert own == {("python", "CPython 3")}
    with pytest.raises(InputError, match="nowhere: no such folder"):
        find(tmp_path / "nowhere")


def distribution(folder: Path, name: str, *files: str) -> None:
    """Install a made-up distribution, version 1.0, with a record of its files."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    record = {f"{name}-1.0.dist-info/RECORD": "".join(f"{file},,\n" for file in files)}
    write_files(folder, {f"{name}-1.0.dist-info/METADATA": metadata, **record, **dict.fromkeys(files, "")})


def test_only_files_of_the_listed_distributions_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, library = tmp_path / "site-packages", tmp_path / "lib"
    write_files(tmp_path, {"lib/os.py": "", "site-packages/stray.py": ""})
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(modules.sysconfig, "get_path", lambda _: str(library))
    importlib.invalidate_caches()
    distribution(site, "Zoo_Core", "zoo/__init__.py", "zoo/fox.py", "zoo/tests/test_fox.py", "zoo.pth", "apes.py")
    distribution(site, "tool", "tool/__init__.py", "zoo/plugin.py")
    files, missing = installed(["zoo-core", "gone"])
    assert [(file.package, file.module, file.path, file.release) for file in files if file.module != "os"] == [
        ("apes", "apes", site / "apes.py", "Zoo_Core 1.0"),
        ("zoo", "zoo", site / "zoo" / "__init__.py", "Zoo_Core 1.0"),
        ("zoo", "zoo.fox", site / "zoo" / "fox.py", "Zoo_Core 1.0"),
    ]
    assert [(file.package, file.path) for file in files if file.module == "os"] == [
        (STANDARD_LIBRARY, library / "os.py")
    ]
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
    document = Document(f"{name}:FoxCounter.count_all", (SUMMARY, BODY), group=name)
    assert list(PYTHON.documents([package])) == [document, Dropped("test")]


def test_its_name_has_the_summary_and_the_summary_the_body(package: Path) -> None:
    (package / "zoo" / "http2.py").write_text(f'"""{SUMMARY} {BODY}"""')
    pairs = [item for item in PYTHON.documents([package / "zoo"], pairs=True) if isinstance(item, Document)]
    assert [pair.segments for pair in pairs] == [
        ("fox fox counter count all", SUMMARY),
        (SUMMARY, BODY),
        ("http 2", f"{SUMMARY} {BODY}"),
    ]
    assert {pair.group for pair in pairs} == {"python/fox.py", "python/http2.py"}


def test_files_of_another_python_and_long_ones_are_left_out(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = package / "old.py"
    for content in (b"x = 1\x00", b"print 'fox'"):
        path.write_bytes(content)
        assert list(PYTHON.documents([path])) == [Dropped("file cannot be parsed")]
    monkeypatch.setattr(python, "MAX_BYTES", 10)
    assert list(PYTHON.documents([path])) == [Bad(str(path), "the file", "more than 10 bytes")]


def rest(docstring: str) -> list[str]:
    return paragraphs("Does the thing.\n\n" + textwrap.dedent(docstring))[1]


@pytest.mark.parametrize(
    ("docstring", "opening", "others"),
    [
        ("Reads a file\n    that is long.\n\n    It is\n    read.\n", "Reads a file that is long.", ["It is read."]),
        # not opened with prose
        ("f(x) -> y\n\nReturns the y of an x.", "", ["Returns the y of an x."]),
        ("Args:\n    x: The number of foxes to see.", "", ["x: The number of foxes to see."]),
        ("x (`int`):\n    The number of foxes to see.", "", ["The number of foxes to see."]),
        ("", "", []),
    ],
)
def test_the_opening_paragraph_and_the_rest(docstring: str, opening: str, others: list[str]) -> None:
    assert paragraphs(docstring) == (opening, others)


GOOGLE = """
    Args:
        x (int, optional): The number of foxes that
            are to be counted.
        y: Whether to count them at all.
        z (`torch.Tensor` of shape `(a, b)`, *optional*):
            The tensor that holds the foxes.
        n - how many of them there are
    Returns:
        float: The mean of the counts, or nan where
        there are none.
    Raises:
        ValueError: If there is no fox in x.

    Note:
        This is slow, but it is right.
    Returns: the count of the foxes
"""
NUMPY = """
    Parameters
    ----------
    x : (M, N) array_like
        The matrix that holds the foxes.
    axis : int, optional
        The axis along which they are counted.

        The last one is the default.

    Returns
    -------
    ndarray or scalar
        The number of foxes in x.

    See Also
    --------
    foxes : The function that makes the foxes.

    Notes
    -----
    The algorithm is as simple
    as it could be.

    References
    ----------
    .. [1] A. Fox, "The count of the foxes", in the Journal of Foxes.
"""
SPHINX = """
    :param int x: the number of foxes
        that are to be counted
    :type x: int or what the user has
    :returns: the count of all of them
    :rtype: int
    @param y: whether it is to be done
"""
MARKDOWN = """
    > [!WARNING]
    > This is something to be
    > warned of.

    Args:
        - x: the number of foxes to see
        - y (int): the number of dogs to see
"""
LISTS = """
    A title
    =======

    These are the foxes:

    - the first item which
      is long
    - the second item is short
    1. the third item is numbered

    .. note:: This is something
        to be noted.

    .. warning::

        This is something to be warned of.
"""
PROSE = {
    GOOGLE: [
        "The number of foxes that are to be counted.",
        "Whether to count them at all.",
        "The tensor that holds the foxes.",
        "how many of them there are.",
        "The mean of the counts, or nan where there are none.",
        "If there is no fox in x.",
        "This is slow, but it is right.",
        "the count of the foxes.",
    ],
    NUMPY: [
        "The matrix that holds the foxes.",
        "The axis along which they are counted.",
        "The last one is the default.",
        "The number of foxes in x.",
        "The algorithm is as simple as it could be.",
    ],
    SPHINX: ["the number of foxes that are to be counted.", "the count of all of them.", "whether it is to be done."],
    MARKDOWN: ["This is something to be warned of.", "the number of foxes to see.", "the number of dogs to see."],
    LISTS: [
        "These are the foxes:",
        "the first item which is long.",
        "the second item is short.",
        "the third item is numbered.",
        "This is something to be noted.",
        "This is something to be warned of.",
    ],
}


@pytest.mark.parametrize("docstring", PROSE, ids=["Google", "NumPy", "Sphinx", "Markdown", "lists"])
def test_descriptions_and_notes_are_kept_without_names_types_and_titles(docstring: str) -> None:
    assert rest(docstring) == PROSE[docstring]


@pytest.mark.parametrize(
    "code",
    [
        ">>> the = fox(of=the, dog=in_it)\n1 is the fox of it\n",
        "```python\nthis is the code\n\nof the fox\n```\n",
        "For example::\n\n    this is the code\n\n    of the fox\n",
        ".. code-block:: python\n\n    this is the code\n\n    of the fox\n",
        ".. math::\n    the sum of x over the y\n",
        "====  =====\nthis  is the\n====  =====\nrow   of the\n====  =====\n",
        "+----+----+\n| of | the|\n+----+----+\n",
        "$ run the command of the fox\n",
        "# this is a comment in the code\n",
        ".. versionadded:: 3.1\n    This is for all of the foxes.\n",
        "https://example.com/the/fox/of/the/dog\n",
        # what announces it is dropped too
        "For example:\n\n>>> fox\n1\n",
        "Use it as this one::\n\n    fox()\n",
    ],
)
def test_code_tables_and_formulas_are_dropped(code: str) -> None:
    found = rest(f"The first of the foxes.\n\n{code}\nThe last of the foxes.")
    assert found == ["The first of the foxes.", "The last of the foxes."]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("See the :class:`~package.module.Fox` of it.", "See the Fox of it."),
        ("See the :ref:`guide <fox-guide>` of it.", "See the guide of it."),
        ("See the :py:func:`fox` of it.", "See the fox of it."),
        ("See the `guide <https://fox.org>`_ of it.", "See the guide of it."),
        ("See the [guide](https://fox.org) of it.", "See the guide of it."),
        ("See the [`Fox`] of it.", "See the Fox of it."),
        ("See the ``fox`` and `dog` of it [1]_.", "See the fox and dog of it."),
        ("See **all** of *the foxes* in it.", "See all of the foxes in it."),
        ("Pass it as \\*args to the <b>fox</b> and <EOS> tokens.", "Pass it as *args to the fox and <EOS> tokens."),
        ("It is 2*x of the y*z that is given.", "It is 2*x of the y*z that is given."),
        ("See https://fox.org/a_b for all of it.", "See for all of it."),
    ],
)
def test_inline_markup_is_removed_and_its_text_kept(marked: str, plain: str) -> None:
    assert rest(marked) == [plain]


@given(st.text(st.sampled_from("ab .:-=`*>\n#()[]|@$\\_<1"), max_size=200))
def test_any_text_can_be_read(docstring: str) -> None:
    opening, others = paragraphs(docstring)
    assert all(text == " ".join(text.split()) and text for text in [*others, opening or "x"])
