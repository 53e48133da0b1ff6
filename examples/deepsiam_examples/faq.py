"""FAQ pages: a line `Q: question`, then a line `A: answer`."""

from collections.abc import Iterator
from pathlib import Path

from deepsiam import register
from deepsiam.data_prep.collections.candidate_lists import CandidateList, CandidateLists
from deepsiam.data_prep.collections.format import text_lines
from deepsiam.data_prep.common.errors import InputError


class Faq(CandidateLists):
    """A question and its answer, its only candidate."""

    summary = "FAQ pages: lines `Q: question` and `A: answer`, in turn"
    item_groups = False

    def lists(self, file: Path) -> Iterator[CandidateList]:
        """Yield a list for each question."""
        lines = text_lines(file)
        for where, question in lines:
            _, answer = next(lines, (where, ""))
            if not question.startswith("Q: ") or not answer.startswith("A: "):
                raise InputError(f"{where}: not a line `Q: …` with a line `A: …` after it")
            yield CandidateList([question[3:]], [answer[3:]], [1.0], where)


register("format", "faq", Faq)
