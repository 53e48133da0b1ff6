"""FlagEmbedding: on each line a query with its positives and negatives, and optionally a teacher's scores of them.

{
    "query": ..., "pos": [text, ...], "neg": [text, ...],
    "pos_scores": [number, ...], "neg_scores": [number, ...]
}

neg may be absent. If every text of a split has a score, the scores are the labels; else the labels are 1 and 0, and if
there are some scores, a remark tells the first line that lacks them. The lines of one query make one group: a text that
is positive on one of them, or has several scores, gets the highest label. `prompt`, `type`, ids and other keys are not
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from data_prep.collections.candidate_lists import CandidateList, CandidateLists
from data_prep.collections.files.json_array import json_records
from data_prep.collections.format import Where, check_number, check_text
from data_prep.common.errors import InputError

SIDES = {"pos": 1.0, "neg": 0.0}


class FlagEmbedding(CandidateLists):
    """A query, its positives, then its negatives."""

    what = "FlagEmbedding's .jsonl: query, pos, neg, and scores"
    whole = False
    mined = True

    def lists(self, file: Path) -> Iterator[CandidateList]:
        """Yield a list for each line."""
        scored = all(file not in self.by_split[split] for split in self._unscored)
        for where, record in json_records(file):
            texts: list[str] = []
            labels: list[float] = []
            for side, label in SIDES.items():
                own = [check_text(text, side, where) for text in _list(record, side, where)]
                texts += own
                labels += _scores(record, side, len(own), where) if scored else [label] * len(own)
                if not texts:
                    raise InputError(f"{where}: {side!r} is empty")
            yield CandidateList([check_text(record.get("query"), "query", where)], texts, labels, where)

    def remarks(self) -> list[str]:
        """Report the splits whose scores are not used."""
        unused = [(split, where) for split, where in self._unscored.items() if self._has_some(split)]
        why = "has texts without a score, so the scores of others are not used"
        return [f"split {split}: labels are 1 and 0: {where} {why}" for split, where in unused]

    @cached_property
    def _unscored(self) -> dict[str, Where]:
        """The first line that lacks scores of each split that has one."""
        first = {
            split: next((where for file in files for where, record in json_records(file) if not _scored(record)), None)
            for split, files in self.by_split.items()
        }
        return {split: where for split, where in first.items() if where is not None}

    def _has_some(self, split: str) -> bool:
        return any(
            record.get(f"{side}_scores")
            for file in self.by_split[split]
            for _, record in json_records(file)
            for side in SIDES
        )


def _scored(record: dict[str, Any]) -> bool:
    """Return whether every list of texts has a list of scores."""
    return all(record.get(f"{side}_scores") is not None for side in SIDES if record.get(side))


def _list(record: dict[str, Any], side: str, where: Where) -> list[Any]:
    texts = record.get(side)
    if texts is None and side == "neg":
        return []
    if not isinstance(texts, list):
        raise InputError(f"{where}: {side!r} is missing or not a list")
    return texts


def _scores(record: dict[str, Any], side: str, texts: int, where: Where) -> list[float]:
    scores = record.get(f"{side}_scores") or []
    if not isinstance(scores, list) or len(scores) != texts:
        raise InputError(f"{where}: '{side}_scores' is not a list of {texts}, one for each of {side!r}")
    return [check_number(score, f"a score of {side!r}:", where) for score in scores]
