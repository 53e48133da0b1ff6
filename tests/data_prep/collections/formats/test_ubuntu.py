"""The Ubuntu corpus: turns split at __eot__, both kinds of CSV, quotes and line breaks."""

import csv
import io

from deepsiam.data_prep.collections.formats.ubuntu import EVALUATION, TRAIN
from tests.data_prep.collections.formats.contract import FormatContract

CONTEXT = "hi , all __eou__ anyone ? __eou__ __eot__ yes __eou__ __eot__ "
PAIRS = [
    [CONTEXT, 'try "apt-get" __eou__ or wait __eou__', "1"],
    [CONTEXT, "no idea , really\n\nsorry __eou__", "0"],
    ["one turn", "no idea , really sorry __eou__", "1"],
]
WRONG = [f"wrong {number}" for number in range(9)]
LISTS = [[CONTEXT, "the right one __eou__", *(f"{text} __eou__" for text in WRONG)]]
LISTS += [["other __eou__ __eot__", "ok __eou__", "ok __eou__", *WRONG[:8]]]
SAID = "hi , all anyone ? yes"


def table(*rows: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


class TestUbuntu(FormatContract):
    name = "ubuntu"
    files = {"train.csv": table(TRAIN, *PAIRS), "valid.csv": table(EVALUATION, *LISTS)}
    found = {
        "train": [
            (SAID, {'try "apt-get" or wait': 1.0}),
            (SAID, {"no idea , really sorry": 0.0}),
            ("one turn", {"no idea , really sorry": 1.0}),
        ],
        "dev": [
            (SAID, {"the right one": 1.0} | dict.fromkeys(WRONG, 0.0)),
            ("other", {"ok": 1.0} | dict.fromkeys(WRONG[:8], 0.0)),  # a distractor equal to the answer is no negative
        ],
    }
    parts = [*[["hi , all anyone ?", "yes"]] * 2, ["one turn"]]
    refused = [
        ("train.csv", "a,b", ":7: 2 columns, expected 3"),
        ("train.csv", "a,b,1,c", ":7: 4 columns, expected 3"),
        ("train.csv", "a,b,2", ":7: label '2' is neither 1 nor 0"),
        ("train.csv", "Context,Utterance,Label", ":7: label 'Label' is neither"),
        ("train.csv", "__eou__ __eot__,b,1", ":7: 'Context' is empty"),
        ("train.csv", "a, __eou__,1", ":7: 'Utterance' is empty"),
        ("train.csv", 'a,"b"c,1', ":7: not CSV"),
        ("train.csv", 'a,"b,1', ":7: not CSV"),
        ({"train.csv": table(*PAIRS)}, "train.csv:1: the first line must be the header Context,Utterance,Label"),
    ]
