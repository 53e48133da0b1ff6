"""ConvAI2 and Persona-Chat: the text files that ParlAI distributes, `train_self_original.txt` and the like.

1 your persona: i like to remodel homes.
2 your persona: i like to go hunting.
3 hi , how are you doing ? TAB you must be very fast . TAB TAB my mom was single . | ... | you must be very fast .
4 i am ! TAB i also remodel homes . TAB TAB ...

A dialogue begins with line 1. Its lines are a persona, if any, then turns: what the other speaker says, the reply, an
empty column, and the candidates separated by `|`, one of which is the reply. In files `..._no_cands.txt` a turn ends
with the reply, which is then the only candidate. The dialogues that the other side begins have `__SILENCE__` as the
first turn, which is kept.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists
from deepsiam.data_prep.collections.format import Where, check_text, text_lines
from deepsiam.data_prep.common.errors import InputError

_LINE = re.compile(r"(\d{1,9}) (.*)", re.DOTALL)
_PERSONA = re.compile(r"(?:your|partner's) persona:")


class ConvAI2(CandidateLists):
    """A query is the persona and the turns so far."""

    summary = "ConvAI2 and Persona-Chat: ParlAI's .txt files"

    def lists(self, file: Path) -> Iterator[CandidateList]:
        turns: list[str] = []
        number = 0
        for where, line in text_lines(file):
            match = _LINE.fullmatch(line)
            if match is None:
                raise InputError(f"{where}: does not begin with its number in the dialogue and a space")
            last_number, number = number, int(match[1])
            if number == 1:
                turns = []
            elif number != last_number + 1:
                raise InputError(f"{where}: numbered {number}, after {last_number}: lines of the dialogue are missing")
            turn, *answer = match[2].split("\t")
            turns.append(check_text(turn, "turn", where))
            if answer:
                reply, candidates = _answer(answer, where)
                yield CandidateList(turns[:], candidates, [float(text == reply) for text in candidates], where)
                turns.append(reply)
            elif not _PERSONA.match(turn):
                raise InputError(f"{where}: neither a line of a persona nor a turn TAB reply TAB TAB candidates")


def _answer(cells: list[str], where: Where) -> tuple[str, list[str]]:
    """Return the reply, and the candidates, which include it."""
    if len(cells) not in (1, 3):
        raise InputError(f"{where}: {1 + len(cells)} columns, expected turn TAB reply TAB TAB candidates")
    reply = check_text(cells[0], "reply", where)
    if len(cells) == 1:
        return reply, [reply]
    candidates = [check_text(text, "candidate", where) for text in cells[2].split("|")]
    if reply not in candidates:
        raise InputError(f"{where}: the reply is not among the candidates")
    return reply, candidates
