"""Answer selection: a question, its passages, and which of them answer it.

JSON lines      {"query": ..., "passages": [{"text": ..., "label": 0 or 1}, ...]} a line
TREC-QA         <QApairs id='1.1'>, then a line <question>, a line of words between tabs, lines of annotations, a line
                </question>; <positive> and <negative> likewise; </QApairs>. The words are joined by spaces
WikiQA          .tsv with the header QuestionID, Question, DocumentID, DocumentTitle, SentenceID, Sentence, Label
other tables    with columns question, passage, label; or .tsv without a header: question TAB passage TAB 0 or 1
HotpotQA        [{"question": ..., "context": [[title, [sentence, ...]], ...], "supporting_facts": [[title, number],
                ...], ...}, ...]: a passage is a title and its paragraph, right if a supporting fact is in it
Quasar-T        two files for a split, {"uid": ..., "question": ..., "answer": ...} a line, and {"uid": ...,
                "contexts": [[score, text], ...]} a line: a passage is right if it contains the words of the answer

In a table the rows of a question are consecutive. Questions without a right passage are kept, and counted; TREC-QA's
questions without any passage are left out. The published ids are not read. Kept in memory: Quasar-T's questions, and
the hashes of the questions of tables.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists, LeftOut
from deepsiam.data_prep.collections.files.json_array import beginning, json_records
from deepsiam.data_prep.collections.files.table import JSON, TSV, table_columns, table_kind, table_rows
from deepsiam.data_prep.collections.format import Where, as_float, check_id, check_list, check_text, text_lines
from deepsiam.data_prep.collections.ids import hash_of
from deepsiam.data_prep.common.errors import InputError

Reader = Callable[..., Iterator[CandidateList | LeftOut]]
COLUMNS = {  # of tables, in lower case; the first one present is used
    "key": ("questionid", "question_id", "qid", "question", "query"),
    "question": ("question", "query"),
    "passage": ("sentence", "passage", "answer", "text"),
    "label": ("label",),
}
WORD = re.compile(r"\w+|[^\w\s]")
TAG = re.compile(r"<(/?)(QApairs|question|positive|negative)\b.*>")


class AnswerSelection(CandidateLists):
    """A query is a question."""

    summary = "answer selection: TREC-QA, WikiQA, HotpotQA (distractor), Quasar-T, or .jsonl with query and passages"
    leaves_out = True

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Detect the format of each file from its beginning."""
        super().__init__(inputs)
        readers = {file: _reader(file) for file in self.paths}
        for split, files in self.by_split.items():
            questions = [file for file in files if readers[file] is None]
            passages = [file for file in files if readers[file] is not None]
            contexts = [file for file in passages if readers[file] is _quasar]
            if questions or contexts:
                if len(questions) != 1 or len(contexts) != 1:
                    file_names = ", ".join(map(str, questions + contexts))
                    raise InputError(f"split {split}: name one file of questions and one of contexts, not {file_names}")
                readers[contexts[0]] = partial(_quasar, questions=questions[0])
        self.readers = {file: reader for file, reader in readers.items() if reader is not None}

    def lists(self, file: Path) -> Iterator[CandidateList | LeftOut]:
        return self.readers[file](file) if file in self.readers else iter(())  # Quasar-T's questions alone are none


def _reader(file: Path) -> Reader | None:
    """Return the reader of a file; None for the questions of Quasar-T."""
    if beginning(file).startswith(b"<"):
        return _trec
    if table_kind(file) != JSON:
        return _table
    where, record = next(json_records(file), (Where(file, 1), {}))
    for key, reader in {"passages": _prepared, "contexts": _quasar, "context": _hotpot, "uid": None}.items():
        if key in record:
            return reader
    return _table


def _prepared(file: Path) -> Iterator[CandidateList]:
    for where, record in json_records(file):
        passages = check_list(record.get("passages"), "passages", where, dict)
        texts = [check_text(passage.get("text"), "text", where) for passage in passages]
        labels = [_label(passage.get("label"), where) for passage in passages]
        yield _list(check_text(record.get("query"), "query", where), texts, labels, where)


def _trec(file: Path) -> Iterator[CandidateList | LeftOut]:
    start: Where | None = None  # where the question begins; None between two questions
    question, next_tag = "", ""
    texts: list[str] = []
    labels: list[float] = []
    for where, line in text_lines(file):
        if tag := TAG.match(line.strip()):
            end, name = tag.groups()
            if (start is None) != (name == "QApairs" and not end):
                raise InputError(f"{where}: {tag[0]} in the wrong place; is there a </QApairs> for each <QApairs>?")
            next_tag = "" if end else name
            if name == "QApairs" and not end:
                start, question, texts, labels = where, "", [], []
            elif name == "QApairs" and start is not None:
                if texts:
                    yield _list(check_text(question, "question", start), texts, labels, start)
                else:
                    yield LeftOut("questions without any passage", start)
                start = None
        elif next_tag == "question":
            question, next_tag = " ".join(line.split()), ""
        elif next_tag in ("positive", "negative"):
            texts.append(" ".join(line.split()))
            labels.append(float(next_tag == "positive"))
            next_tag = ""
    if start is not None:
        raise InputError(f"{start}: <QApairs> without its end; is the file cut short?")


def _table(file: Path) -> Iterator[CandidateList]:
    hashes: set[int] = set()
    for key, group in groupby(_rows(file), lambda row: row[0]):
        _, questions, texts, labels, places = zip(*group, strict=True)
        where, question = places[0], questions[0]
        if (hashed := hash_of(str(key))) in hashes:
            raise InputError(f"{where}: question {key!r:.80} came before; sort the file by questions")
        hashes.add(hashed)
        for row_question, place in zip(questions, places, strict=True):
            if row_question != question:
                raise InputError(f"{place}: question {key!r:.80} is another one {where.before(place)}")
        yield _list(question, texts, list(labels), where)


def _rows(file: Path) -> Iterator[tuple[Any, str, str, float, Where]]:
    """Yield the key of the question, the question, the passage and its label, of each row."""
    names = table_columns(file)
    columns = [next((n for k in keys for n in names if n.lower() == k), None) for keys in COLUMNS.values()]
    if None not in columns:
        rows = ((where, [row.get(str(name)) for name in columns]) for where, row in table_rows(file))
    elif table_kind(file) == TSV and len(names) == 3 and names[2] in ("0", "1"):
        split = ((where, line.split("\t")) for where, line in text_lines(file))
        rows = ((where, [cells[0], *cells]) for where, cells in split)
    else:
        raise InputError(f"{file}: not a file of answer selection: it has no columns question, passage and label")
    for where, cells in rows:
        if len(cells) != len(COLUMNS):
            raise InputError(f"{where}: {len(cells) - 1} columns, expected 3: question, passage, label")
        key, question, text, label = cells
        texts = check_text(question, "question", where), check_text(text, "passage", where)
        yield key, *texts, _label(label, where), where


def _hotpot(file: Path) -> Iterator[CandidateList]:
    for where, record in json_records(file):
        question = check_text(record.get("question"), "question", where)
        facts = _pairs(record, "supporting_facts", where, "; test sets have none")
        if not all(isinstance(title, str) for title, _ in facts):
            raise InputError(f"{where}: 'supporting_facts' is not a list of [title, number]")
        supporting_titles = {title for title, _ in facts}
        paragraphs = _pairs(record, "context", where)
        texts = []
        for title, sentences in paragraphs:
            if not isinstance(sentences, list) or not all(isinstance(part, str) for part in (title, *sentences)):
                raise InputError(f"{where}: 'context' is not a list of [title, [sentence, ...]]")
            texts.append(check_text(" ".join([title, *map(str.strip, sentences)]), "context", where))
        yield _list(question, texts, [float(title in supporting_titles) for title, _ in paragraphs], where)


def _quasar(file: Path, questions: Path) -> Iterator[CandidateList]:
    by_uid: dict[str, tuple[str, str, Where]] = {}
    for where, record in json_records(questions):
        texts = [check_text(record.get(key), key, where) for key in ("question", "answer")]
        by_uid[check_id(record.get("uid"), "uid", where)] = texts[0], _words(texts[1]), where
    for where, record in json_records(file):
        uid = check_id(record.get("uid"), "uid", where)
        if uid not in by_uid:
            raise InputError(f"{where}: uid {uid!r} is not in {questions}, or came before")
        question, answer, _ = by_uid.pop(uid)
        texts = [check_text(text, "contexts", where) for _, text in _pairs(record, "contexts", where)]
        yield _list(question, texts, [float(answer in _words(text)) for text in texts], where)
    for uid, (_, _, where) in by_uid.items():
        raise InputError(f"{where}: uid {uid!r} has no contexts in {file}")


def _words(text: str) -> str:
    """Return a text's words and marks in lower case, each between spaces, so that `in` finds whole words."""
    return f" {' '.join(WORD.findall(text.lower()))} "


def _pairs(record: dict[str, Any], key: str, where: Where, remark: str = "") -> list[Any]:
    pairs = record.get(key)
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise InputError(f"{where}: {key!r} is missing or not a list of pairs{remark}")
    return pairs


def _label(label: Any, where: Where) -> float:
    """Return 1 or 0, which may be given as 1, 1.0, true or their text, but not as "true"."""
    try:
        number = as_float(label)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if number not in (0, 1):
        raise InputError(f"{where}: label {label!r:.40} is neither 1 nor 0")
    return number


def _list(question: str, texts: Sequence[str], labels: Sequence[float], where: Where) -> CandidateList:
    if not texts:
        raise InputError(f"{where}: has no passages")
    return CandidateList([question], texts, labels, where)
