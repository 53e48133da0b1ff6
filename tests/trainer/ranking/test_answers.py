"""Queries to search for, from a split or a file, and errors in such a file."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.answers import read_queries


def test_a_split_has_each_of_its_queries_once(opened: Collection) -> None:
    queries, _ = read_queries("test", opened, "auto")
    assert list(queries) == [f"q{i}" for i in range(100, 120)]
    assert queries["q107"] == opened.queries.text(107)


def test_a_file_has_a_query_a_line(opened: Collection, tmp_path: Path) -> None:
    """Marks, line ends and blank lines of Windows are no text."""
    file = tmp_path / "q.tsv"
    file.write_text("\ufeff7\thow do planes fly\r\n\r\n\ufeffb\twith a\ttab\r\n \nc\t\n", newline="")
    assert read_queries(str(file), opened, "auto") == ({"7": "how do planes fly", "b": "with a\ttab", "c": ""}, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\nno tab\n", "q.tsv:2: write ID, a tab, and the query"),
        ("\tno id\n", "q.tsv:1: write ID, a tab"),
        ("a\tb\nb\tc\na\td\n", "q.tsv:3: the id 'a' is on an earlier line"),
        ("", "q.tsv: is empty"),
        ("\n  \n", "q.tsv: has no query"),
        (None, r"no such file, nor a split of .* \(it has test, train\)"),
    ],
)
def test_what_is_wrong_is_refused(opened: Collection, tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "q.tsv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_queries(str(tmp_path / "q.tsv"), opened, "auto")
