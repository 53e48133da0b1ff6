"""Tab-separated files without a header, like MS MARCO's and TREC's: rows, texts with ids, relevance judgements."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepsiam.data_prep.collections.format import (
    Labelled,
    Text,
    Where,
    check_grade,
    check_id,
    check_text,
    fields,
    text_lines,
)
from deepsiam.data_prep.common.errors import InputError

# a first line of only these words is a header and is left out: no id or text is one of these words
HEADER = (
    {"id", "qid", "pid", "docid", "docno", "queryid", "passageid", "documentid", "corpusid", "topicid", "topic"}
    | {"query", "text", "passage", "document", "contents", "url", "title", "body", "positive", "negative"}
    | {"iter", "iteration", "rel", "relevance", "label", "score", "grade"}
)
GRADES = range(-10, 101)  # of relevance; ranks and scores exceed this range sooner or later


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Where, list[str]]]:
    """Yield the cells of each line; raise InputError if there are more or fewer cells than columns."""
    for where, line in text_lines(path):
        cells = line.split("\t")
        if len(cells) != len(columns):
            form = f"{len(columns)} between tabs: {', '.join(columns)}"
            raise InputError(f"{where}: {counted(cells)}, expected {form}")
        if not is_header(where, cells):
            yield where, cells


def id_texts(path: Path) -> Iterator[Text]:
    """Yield the texts of lines with id TAB text."""
    for where, (name, text) in rows(path, ("id", "text")):
        yield Text(check_id(name, "id", where), [check_text(text, "text", where)], where)


def judgements(path: Path) -> Iterator[Labelled]:
    """Yield the judgements of a qrels file: `query 0 document grade`, the 0 optional, separated by tabs or spaces.

    Ids contain no spaces.
    """
    for where, line in text_lines(path):
        cells = fields(line)
        if len(cells) not in (3, 4):
            raise InputError(f"{where}: {counted(cells)}, expected query, 0, document, grade, or these without the 0")
        if is_header(where, cells):
            continue
        grade = check_grade(cells[-1], "grade", where)
        if grade not in GRADES:
            raise InputError(f"{where}: grade {grade} is not in {GRADES[0]}...{GRADES[-1]}; is it a rank or a score?")
        yield Labelled(cells[0], [cells[-2]], [grade], where)


def is_header(where: Where, cells: Sequence[str]) -> bool:
    """Return whether a line is a header: the first line, with nothing but names of columns."""
    return where.line == 1 and HEADER.issuperset(re.sub(r"[\W_]", "", cell).lower() for cell in cells)


def counted(cells: Sequence[str]) -> str:
    """Return the number of columns as words for a message."""
    return "1 column" if len(cells) == 1 else f"{len(cells)} columns"
