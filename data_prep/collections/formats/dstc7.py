"""DSTC7, track 1: JSON arrays, such as ubuntu_train_subtask_1.json, whose items are

{
    "example-id": 1,
    "messages-so-far": [{"speaker": "participant_1", "utterance": ...}, ...],
    "options-for-next": [{"candidate-id": ..., "utterance": ...}, ...],                 100 of them
    "options-for-correct-answers": [{"candidate-id": ..., "utterance": ...}, ...]       one, mostly
}

and tables without a header, between tabs:

candidate-id, utterance                 the candidate pool of subtask 2, whose items have no options-for-next
example-id, candidate-id, utterance     the answers to a test set, whose items have no options-for-correct-answers

Consecutive messages of a speaker are one turn. As in ParlAI, a right answer that is not among the options is added to
them (its augmented training set has such items). Only items of subtask 4 ("scenario": 4) may have no right answer.
Answers, the ids of a candidate pool, and one item of an array at a time are held in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists
from deepsiam.data_prep.collections.files.json_array import json_items
from deepsiam.data_prep.collections.format import Text, Where, check_list, check_text, suffixes, text_lines
from deepsiam.data_prep.collections.ids import content_id
from deepsiam.data_prep.common.errors import InputError

MESSAGES, OPTIONS, CORRECT = "messages-so-far", "options-for-next", "options-for-correct-answers"
NONE_MAY_BE_RIGHT = 4  # the subtask
POOL, ANSWERS = 2, 3  # columns


class Dstc7(CandidateLists):
    """A query is the messages so far."""

    summary = "DSTC7, track 1: .json files, .tsv files of answers and of candidates"

    def __init__(self, inputs: Sequence[Path]) -> None:
        """Take any number of arrays, and tables, which have .tsv in their names."""
        tables = [path for path in inputs if ".tsv" in suffixes(path)]
        if len(tables) == len(inputs):
            raise InputError(f"{inputs[0]}: name the .json files of the dialogues too")
        super().__init__([path for path in inputs if path not in tables])
        self.tables = [(path, _columns(path)) for path in tables]
        self.by_part = {"queries": self.paths}  # the tables are in memory after the corpus
        self.paths = [*self.paths, *tables]

    def corpus(self) -> Iterator[Text]:
        """Yield the candidate pool, and every candidate of the dialogues."""
        for where, (_, text) in self._rows(POOL):
            yield Text(content_id(text), [text], where)
        yield from super().corpus()

    def pool(self, split: str) -> Iterator[tuple[str, Where]] | None:
        return iter(self._pool.items()) if self._pool else None

    def lists(self, file: Path) -> Iterator[CandidateList]:
        for where, item in json_items(file):
            messages = check_list(item.get(MESSAGES), MESSAGES, where, dict)
            by_speaker = groupby(messages, lambda message: message.get("speaker"))
            turns = [" ".join(_utterances(messages, where)) for _, messages in by_speaker]
            if not turns:
                raise InputError(f"{where}: {MESSAGES!r} is empty")
            options = _utterances(check_list(item[OPTIONS], OPTIONS, where, dict), where) if OPTIONS in item else []
            if CORRECT in item:
                answers = _utterances(check_list(item[CORRECT], CORRECT, where, dict), where)
            else:
                answers = self._answers.get(str(item.get("example-id")), [])
            if not answers and item.get("scenario") != NONE_MAY_BE_RIGHT:
                raise InputError(f"{where}: without {CORRECT!r}; for a test set, name the .tsv file of its answers too")
            if not options:
                self._check_pool(answers, where)
            candidates = [*(text for text in answers if text not in options), *options]
            yield CandidateList(turns, candidates, [float(text in answers) for text in candidates], where)

    def _check_pool(self, answers: list[str], where: Where) -> None:
        """Raise InputError if the right answer of an item without options is not in the candidate pool."""
        if not self._pool:
            raise InputError(f"{where}: without {OPTIONS!r}; for subtask 2, name the .tsv file of the candidates too")
        for text in answers:
            if content_id(text) not in self._pool:
                raise InputError(f"{where}: {text!r:.80} is not in the candidate pool")

    @cached_property
    def _pool(self) -> dict[str, Where]:
        """The line of every text in the candidate pool, by its id; for equal texts, the first line."""
        pool: dict[str, Where] = {}
        for where, (_, text) in self._rows(POOL):
            pool.setdefault(content_id(text), where)
        return pool

    @cached_property
    def _answers(self) -> dict[str, list[str]]:
        """The right answers by example-id."""
        answers: dict[str, list[str]] = {}
        for _, (example, _, text) in self._rows(ANSWERS):
            answers.setdefault(example, []).append(text)
        return answers

    def _rows(self, columns: int) -> Iterator[tuple[Where, list[str]]]:
        """Yield the rows of the tables with this number of columns."""
        for path, number in self.tables:
            for where, line in text_lines(path) if number == columns else ():
                cells = line.split("\t")
                if len(cells) != columns:
                    raise InputError(f"{where}: {len(cells)} columns, the first line has {columns}")
                yield where, [*cells[:-1], check_text(cells[-1], "utterance", where)]


def _columns(path: Path) -> int:
    """Return the number of columns of a table."""
    where, line = next(text_lines(path), (Where(path, 1), ""))
    number = len(line.split("\t"))
    if number not in (POOL, ANSWERS):
        forms = "candidate-id TAB utterance, or example-id TAB candidate-id TAB utterance"
        raise InputError(f"{where}: {number} columns, expected {forms}")
    return number


def _utterances(messages: Iterable[dict[str, Any]], where: Where) -> list[str]:
    return [check_text(message.get("utterance"), "utterance", where) for message in messages]
