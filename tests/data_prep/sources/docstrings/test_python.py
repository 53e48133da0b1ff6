"""Docstrings of Python files as documents, and as pairs of name, summary and body."""

from pathlib import Path

import pytest

from deepsiam.data_prep.sources.docstrings import python
from deepsiam.data_prep.sources.docstrings.python import PYTHON
from deepsiam.data_prep.sources.document import Bad, Document, Dropped

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
    (tmp_path / "zoo" / "tests").mkdir(parents=True)
    (tmp_path / "zoo" / "fox.py").write_text(CODE)
    (tmp_path / "zoo" / "tests" / "test_fox.py").write_text(CODE)
    return tmp_path


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
    monkeypatch.setattr(python, "LONGEST", 10)
    assert list(PYTHON.documents([path])) == [Bad(str(path), "the file", "more than 10 bytes")]
