"""FlagEmbedding: on each line a query with its positives and negatives, and optionally a teacher's scores of them.

{
    "query": ..., "pos": [text, ...], "neg": [text, ...],
    "pos_scores": [number, ...], "neg_scores": [number, ...]
}

neg may be absent, and so may each list of scores. The lines of one query make one group: a text that is positive on one
of them is positive, and of several scores the highest of such lines counts. `prompt`, `type`, ids and other keys are
not read.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists
from deepsiam.data_prep.collections.files.json_array import json_records
from deepsiam.data_prep.collections.format import Where, check_list, check_number, check_text
from deepsiam.data_prep.common.errors import InputError

SIDES = {"pos": 1.0, "neg": 0.0}


class FlagEmbedding(CandidateLists):
    """A query, its positives, then its negatives."""

    summary = "FlagEmbedding's .jsonl: query, pos, neg, and scores"
    item_groups = False
    mined = True

    def lists(self, file: Path) -> Iterator[CandidateList]:
        for where, record in json_records(file):
            texts: list[str] = []
            labels: list[float] = []
            scores: list[float] = []
            for side, label in SIDES.items():
                side_values = [] if (side, record.get(side)) == ("neg", None) else record.get(side)
                side_texts = [check_text(text, side, where) for text in check_list(side_values, side, where)]
                texts += side_texts
                labels += [label] * len(side_texts)
                scores += _scores(record, side, len(side_texts), where)
                if not texts:
                    raise InputError(f"{where}: {side!r} is empty")
            yield CandidateList([check_text(record.get("query"), "query", where)], texts, labels, where, scores)


def _scores(record: dict[str, Any], side: str, texts: int, where: Where) -> list[float]:
    scores = record.get(f"{side}_scores")
    if scores is None:
        return [math.nan] * texts
    if not isinstance(scores, list) or len(scores) != texts:
        raise InputError(f"{where}: '{side}_scores' is not a list of {texts}, one for each of {side!r}")
    return [check_number(score, f"a score of {side!r}:", where) for score in scores]
