"""The Ubuntu Dialogue Corpus V2: CSV files with a header.

train.csv               Context,Utterance,Label: 1 if the utterance is the next one, 0 if it is any other
valid.csv, test.csv     Context,Ground Truth Utterance,Distractor_0,...,Distractor_8

`__eou__` ends an utterance and `__eot__` a turn. These marks are removed. A turn is a part of the query, with its
utterances joined by spaces. A line of train.csv is a group of one candidate.
"""

from collections.abc import Iterator
from pathlib import Path

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists
from deepsiam.data_prep.collections.files.table import csv_rows
from deepsiam.data_prep.common.errors import InputError

TRAIN = ["Context", "Utterance", "Label"]
EVALUATION = ["Context", "Ground Truth Utterance", *(f"Distractor_{number}" for number in range(9))]
LABELS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}


class Ubuntu(CandidateLists):
    """A query is the turns of a context."""

    summary = "the Ubuntu Dialogue Corpus V2: train.csv, valid.csv, test.csv"

    def lists(self, file: Path) -> Iterator[CandidateList]:
        header: list[str] = []
        for where, row in csv_rows(file):
            if not header:
                header = row
                if header not in (TRAIN, EVALUATION):
                    raise InputError(
                        f"{where}: the first line must be the header {','.join(TRAIN)}, or that of test.csv"
                    )
                continue
            if len(row) != len(header):
                raise InputError(f"{where}: {len(row)} columns, expected {len(header)}")
            context, *utterances = row
            turns = [turn for turn in map(_words, context.split("__eot__")) if turn]
            if not turns:
                raise InputError(f"{where}: 'Context' is empty")
            if header == EVALUATION:
                labels = [1.0, *[0.0] * 9]
            elif (cell := utterances.pop()) in LABELS:
                labels = [LABELS[cell]]
            else:
                raise InputError(f"{where}: label {cell!r} is neither 1 nor 0")
            candidates = [_words(text.replace("__eot__", " ")) for text in utterances]
            if "" in candidates:
                raise InputError(f"{where}: {header[1 + candidates.index('')]!r} is empty")
            yield CandidateList(turns, candidates, labels, where)


def _words(text: str) -> str:
    return " ".join(text.replace("__eou__", " ").split())
