"""DPR: questions with their passages, such as biencoder-nq-train.json; a JSON array, or a line each.

{
    "question": ..., "answers": [...],
    "positive_ctxs": [{"title": ..., "text": ..., "score": ..., "passage_id": ...}, ...],
    "negative_ctxs": [...], "hard_negative_ctxs": [...]
}

Only question, title and text are read. A title, if there is one, is put before the text, with a space. A question
without positives, as some of DPR's own files have, is left out, as in DPR's trainer. The negatives were found by
search: a negative that is a positive on another line with the same question counts as a positive. One question is in
memory at a time.
"""

from collections.abc import Iterator
from pathlib import Path

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists, LeftOut
from deepsiam.data_prep.collections.files.json_array import json_records
from deepsiam.data_prep.collections.format import check_list, check_text, titled_text

POSITIVE, NEGATIVES = "positive_ctxs", ("hard_negative_ctxs", "negative_ctxs")


class Dpr(CandidateLists):
    """A query is a question; its hard negatives come before the others."""

    summary = "DPR's questions with passages: .json, .jsonl"
    item_groups = False
    mined = True
    leaves_out = True

    def lists(self, file: Path) -> Iterator[CandidateList | LeftOut]:
        for where, record in json_records(file):
            question = check_text(record.get("question"), "question", where)
            texts: list[str] = []
            counts = []
            for key in (POSITIVE, *NEGATIVES):
                passages = check_list(record.get(key, None if key == POSITIVE else []), key, where, dict)
                texts += (titled_text(passage, ["text"], where) for passage in passages)
                counts.append(len(passages))
            positives = counts[0]
            if positives:
                yield CandidateList([question], texts, [1.0] * positives + [0.0] * (len(texts) - positives), where)
            else:
                yield LeftOut("questions without a positive passage", where)
