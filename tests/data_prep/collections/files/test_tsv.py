"""Tab-separated rows, texts with ids, and qrels in all their layouts."""

from pathlib import Path

import pytest

from deepsiam.data_prep.collections.files.tsv import judgements, rows
from deepsiam.data_prep.collections.format import Where
from deepsiam.data_prep.common.errors import InputError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_rows_are_cells_between_tabs_without_a_header(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfpid\tPassage\r\n1\ta "quoted, text\r\n\r\n2\tid\r\npid\tpassage\r\n')
    assert list(rows(file, ["pid", "passage"])) == [
        (Where(file, 2), ["1", 'a "quoted, text']),
        (Where(file, 4), ["2", "id"]),
        (Where(file, 5), ["pid", "passage"]),  # only the first line can be a header
    ]


@pytest.mark.parametrize(
    "content",
    ["1\t0\tD7\t2\n2\t0\tD8\t-1\n", "1 0 D7 2\n2 0 D8 -1\n", "1 Q0 D7  2 \r\n2\tQ0 D8\t-1\r\n"]
    + ["1\tD7\t2\n2\tD8\t-1\n", "1 D7 2\n2 D8 -1\n", "query-id\tcorpus-id\tscore\n1\tD7\t2\n2\tD8\t-1\n"],
    ids=["tabs", "spaces", "mixed, CRLF", "three, tabs", "three, spaces", "header"],
)
def test_judgements_between_tabs_or_spaces_with_or_without_a_0(file: Path, content: str) -> None:
    file.write_text(content)
    found = [(query, candidates, labels) for query, candidates, labels, *_ in judgements(file)]
    assert found == [("1", ["D7"], [2]), ("2", ["D8"], [-1])]


def test_a_first_judgement_is_no_header(file: Path) -> None:
    file.write_text("0 0 0 0\n")
    assert next(judgements(file))[:4] == ("0", ["0"], [0], Where(file, 1))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 D7", "file:2: 2 columns, expected query, 0, document, grade"),
        ("1\tSong of songs\t1", "file:2: 5 columns"),
        ("1 Q0 D7 1 12.5 bm25", "file:2: 6 columns"),
        ("1 0 D7 relevant", "file:2: grade 'relevant' is not a whole number"),
        ("1\tD7\t0.5", "file:2: grade '0.5' is not a whole number"),
        ("1\tD7\t101", "file:2: grade 101 is not in -10...100; is it a rank"),
        ("query 0 document grade", "file:2: grade 'grade'"),
    ],
)
def test_a_bad_judgement_is_named(file: Path, line: str, reason: str) -> None:
    file.write_text(f"1 0 D7 1\n{line}\n")
    with pytest.raises(InputError, match=reason):
        list(judgements(file))
