"""Labelled pairs of sentences: MNLI, SNLI, RTE, QQP and SICK, as first published and in GLUE's folders.

                columns among others                                    classes, numbered from 0
MNLI, SNLI      sentence1, sentence2, gold_label                        entailment, neutral, contradiction
SICK            sentence_A, sentence_B, entailment_judgment             entailment, neutral, contradiction
RTE             sentence1, sentence2, label                             entailment, not_entailment
QQP             question1, question2, is_duplicate                      not_duplicate, duplicate
Hugging Face's  premise, hypothesis, label: the name or the number      as above
any other       those named by --columns: the name of the class         as above

The files are .jsonl, .parquet, or .tsv (or .txt) with a header, where quotes are ordinary characters. A pair is a
group: its first text is the query, its second text the only candidate, its class the label. Pairs without a gold label
(`-`, or -1) are left out. As in GLUE's readers, QQP's rows that a line break in a question has cut short, and those
with an empty question, are left out too. If a file's name contains matched or mismatched, the split is dev_matched and
so on. SICK.txt, which has a column SemEval_set, has the splits train, dev and test.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists, LeftOut
from deepsiam.data_prep.collections.files.table import table_columns, table_rows
from deepsiam.data_prep.collections.files.text_columns import GivenColumns, given_columns
from deepsiam.data_prep.collections.format import Where, check_text, files_by_split, split_and_file
from deepsiam.data_prep.common.errors import InputError

NLI = ("entailment", "neutral", "contradiction")
RTE = ("entailment", "not_entailment")
QQP = ("not_duplicate", "duplicate")
QUESTIONS = ("question1", "question2")
# the classes of texts whose label may be a number
NUMBERED = {QUESTIONS: QQP, ("premise", "hypothesis"): NLI, ("sentence_A", "sentence_B"): NLI}
TEXTS = (*NUMBERED, ("sentence1", "sentence2"))
LABELS = ("gold_label", "is_duplicate", "entailment_judgment", "entailment_label", "label")
NO_LABEL = {"-", "-1"}
SET, SETS = "SemEval_set", {"TRAIN": "train", "TRIAL": "dev", "TEST": "test"}


class Nli(CandidateLists):
    """A query is a premise, or the first question."""

    summary = "pairs with a class: MNLI, SNLI, RTE, QQP, SICK: .tsv, .txt, .jsonl, .parquet"
    leaves_out = True
    takes_columns = True

    def __init__(self, inputs: Sequence[Path], columns: GivenColumns = ()) -> None:
        """Find the splits, and determine the classes from the first labels."""
        self.by_split: dict[str, list[Path]] = {}
        # of each file: those of the texts, that of the label
        self.columns: dict[Path, tuple[tuple[str, str], str]] = {}
        for location in inputs:
            file = split_and_file(location)[1]
            names = table_columns(file)
            self.columns[file] = _given(file, columns) if columns else _texts_and_label(file, names)
            for split in SETS.values() if SET in names else [_split(location)]:
                self.by_split.setdefault(split, []).append(file)
        self.paths = self._listed()
        self.classes = next(filter(None, map(self._classes, self.columns)), NLI)

    def lists(self, file: Path) -> Iterator[CandidateList | LeftOut]:
        return (item for _, item in self._pairs(file))

    def of_split(self, split: str) -> Iterator[CandidateList | LeftOut]:
        """Yield the pairs of the split's files, or of its part of SICK.txt."""
        for file in self.by_split[split]:
            yield from (item for item_split, item in self._pairs(file) if item_split in (None, split))

    def _pairs(self, file: Path) -> Iterator[tuple[str | None, CandidateList | LeftOut]]:
        """Yield each pair, with its split if a column gives it."""
        texts, label = self.columns[file]
        for where, row in table_rows(file, cut_short=True):
            split = None
            if SET in row and (split := SETS.get(str(row[SET]))) is None:
                raise InputError(f"{where}: {SET} {row[SET]!r:.40} is not one of {', '.join(SETS)}")
            if texts == QUESTIONS and not all(str(row.get(name, "")).strip() for name in (*texts, label)):
                yield split, LeftOut("pairs cut short, or with an empty question", where)
            elif str(row.get(label)) in NO_LABEL:
                yield split, LeftOut("pairs without a gold label", where)
            else:
                premise, hypothesis = (check_text(row.get(name), name, where) for name in texts)
                if label not in row:
                    raise InputError(f"{where}: {label!r} is missing; is the row cut short?")
                number = self._class(row[label], texts, label, where)
                yield split, CandidateList([premise], [hypothesis], [number], where)

    def _class(self, label: Any, texts: tuple[str, str], key: str, where: Where) -> float:
        name = str(label).lower()
        if NUMBERED.get(texts) == self.classes and name in map(str, range(len(self.classes))):
            return float(name)
        if name not in self.classes:
            raise InputError(f"{where}: {key} {label!r:.40} is not one of {', '.join(self.classes)}")
        return float(self.classes.index(name))

    def _classes(self, file: Path) -> Sequence[str] | None:
        """Return the classes of a file; None if its labels do not tell."""
        texts, label = self.columns[file]
        if texts == QUESTIONS:
            return QQP
        for _, row in table_rows(file, cut_short=True):
            name = str(row.get(label)).lower()
            if name.isdecimal():
                return NUMBERED.get(texts)
            if name in {*NLI[1:], RTE[1]}:  # not "entailment", which is in both
                return NLI if name in NLI else RTE
        return None


def _texts_and_label(file: Path, names: Sequence[str]) -> tuple[tuple[str, str], str]:
    texts = next((pair for pair in TEXTS if set(pair) <= set(names)), None)
    if texts is None:
        pairs = ", or ".join(" and ".join(pair) for pair in TEXTS)
        raise InputError(f"{file}: has no columns {pairs}; are their names in its first line?")
    label = next((name for name in LABELS if name in names), None)
    if label is None:
        raise InputError(f"{file}: has no column {', '.join(LABELS)}: the labels of test sets are often not published")
    return texts, label


def _given(file: Path, columns: GivenColumns) -> tuple[tuple[str, str], str]:
    (premise, hypothesis), label, *_ = given_columns(file, columns, negatives=False, needs_label=True)
    return (premise, hypothesis), str(label)


def _split(location: Path) -> str:
    split, file = split_and_file(location)
    (name_split,) = files_by_split([file])
    matched = re.search(r"(mis)?matched", file.name.lower())
    return split or (f"{name_split}_{matched[0]}" if matched else name_split)
